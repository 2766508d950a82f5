"""Kernels as loops that LLVM compiles for the host."""
