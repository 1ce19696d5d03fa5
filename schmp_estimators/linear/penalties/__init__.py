"""What coefficients cost: each penalty is a named tuple, which kernels are compiled for."""
