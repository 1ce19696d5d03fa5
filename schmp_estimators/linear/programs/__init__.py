"""The algorithms for sparse linear models, as programs."""
