"""``fluid.optimizer``."""

from ..graph.optimizer import *  # noqa: F403 - the list is kept there
from ..graph.optimizer import __all__ as __all__
