"""Losses of predictions."""
