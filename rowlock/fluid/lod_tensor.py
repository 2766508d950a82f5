"""``fluid.lod_tensor``: tensors of sequences."""

from ..executor.device.tensor import create_lod_tensor, create_random_int_lodtensor
from ..names import listing, missing

__all__ = ["create_lod_tensor", "create_random_int_lodtensor"]
__dir__ = listing(__name__)
__getattr__ = missing(__name__)
