"""``fluid.optimizer``."""

from ..graph.training.optimizer import *
from ..graph.training.optimizer import __all__ as __all__
from ..names import missing, publish_listed

__getattr__ = missing(__name__)  # type checkers cannot read the list

publish_listed(__name__)
