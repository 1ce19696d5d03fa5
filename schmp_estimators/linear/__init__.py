"""Sparse linear models."""
