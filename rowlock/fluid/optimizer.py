"""``fluid.optimizer``."""

from ..graph.training.optimizer import *
from ..graph.training.optimizer import __all__ as __all__
from ..names import listing, missing

__dir__ = listing(__name__)
__getattr__ = missing(__name__)
