"""Scheduled model parallelism for the Python data stack."""

__version__ = "0.1.0"
