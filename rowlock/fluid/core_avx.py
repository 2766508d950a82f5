"""``fluid.core_avx``: ``fluid.core`` by the name that it has on processors with AVX."""

from ..names import publish_listed
from .core import *
from .core import __all__ as __all__

publish_listed(__name__)
