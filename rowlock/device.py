"""``paddle.device``: which device computes where no place is named."""

from .fluid.core import is_compiled_with_cuda
from .functions.framework import get_device, is_compiled_with_xpu, set_device
from .names import listing

__all__ = ["get_device", "is_compiled_with_cuda", "is_compiled_with_xpu", "set_device"]
__dir__ = listing(__name__)
