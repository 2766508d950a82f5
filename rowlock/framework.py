"""``paddle.framework``: attributes of parameters, places, the default element type, files of values."""

from .executor.device.place import CPUPlace, CUDAPinnedPlace, CUDAPlace
from .functions.framework import get_default_dtype, no_grad, seed, set_default_dtype
from .functions.saving import load, save
from .graph.layers.io import create_parameter
from .graph.layers.param_attr import ParamAttr
from .names import publish_listed

__all__ = [
    "CPUPlace",
    "CUDAPinnedPlace",
    "CUDAPlace",
    "ParamAttr",
    "create_parameter",
    "get_default_dtype",
    "load",
    "no_grad",
    "save",
    "seed",
    "set_default_dtype",
]

publish_listed(__name__)
