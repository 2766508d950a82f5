"""Kernels as loops that Numba compiles for the host."""
