"""``fluid.contrib``: mixed precision."""

from ...names import listing, missing
from . import mixed_precision

__all__ = ["mixed_precision"]
__dir__ = listing(__name__)
__getattr__ = missing(__name__)
