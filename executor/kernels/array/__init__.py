"""Kernels in array calls that NumPy and CuPy share, by family."""
