"""Kernels in CUDA C++, generated for the shapes at hand, by family."""
