"""The algorithms for matrix factorisation, as programs."""
