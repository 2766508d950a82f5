"""``paddle.device``: which device computes where no place is named."""

from .fluid.core import is_compiled_with_cuda as is_compiled_with_cuda
from .functions.framework import get_device as get_device
from .functions.framework import is_compiled_with_xpu as is_compiled_with_xpu
from .functions.framework import set_device as set_device
from .names import publish_imports

publish_imports(__name__)
