"""The inner loops of sparse linear models."""
