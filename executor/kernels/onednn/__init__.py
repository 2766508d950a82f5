"""Kernels that oneDNN computes, by family. Without the library they are listed, and never chosen."""
