"""``paddle.framework``: attributes of parameters, places, the default element type, files of values."""

from .executor.device.place import CPUPlace as CPUPlace
from .executor.device.place import CUDAPinnedPlace as CUDAPinnedPlace
from .executor.device.place import CUDAPlace as CUDAPlace
from .functions.framework import get_default_dtype as get_default_dtype
from .functions.framework import no_grad as no_grad
from .functions.framework import seed as seed
from .functions.framework import set_default_dtype as set_default_dtype
from .functions.saving import load as load
from .functions.saving import save as save
from .graph.layers.io import create_parameter as create_parameter
from .graph.layers.param_attr import ParamAttr as ParamAttr
from .names import publish_imports

publish_imports(__name__)
