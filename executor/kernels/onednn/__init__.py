"""Kernels that oneDNN computes, by family. Without the library they are listed, and never chosen.

* oneDNN: ``executor/kernels/onednn/library.py`` finds it and owns its objects.
  ``executor/kernels/onednn/primitive.py`` compiles primitives for shapes and strides (kept, shared by
  plans) and binds them to arrays, with copies where formats differ. Kernels stand beside them by family,
  registered with ``executor/kernels/onednn/support.py`` ``onednn``. ``tests/ops/test_onednn.py`` runs every
  sample on both layouts.
"""
