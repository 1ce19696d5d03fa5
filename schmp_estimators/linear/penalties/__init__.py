"""Penalties of coefficients: each is a named tuple, for whose type kernels are compiled."""
