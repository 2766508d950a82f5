"""``fluid.lod_tensor``: tensors of sequences."""

from ..executor.device.tensor import create_lod_tensor as create_lod_tensor
from ..executor.device.tensor import create_random_int_lodtensor as create_random_int_lodtensor
from ..names import publish_imports

publish_imports(__name__)
