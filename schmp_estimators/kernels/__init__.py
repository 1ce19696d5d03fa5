"""numba kernels: arrays in, arrays out, no Python objects."""
