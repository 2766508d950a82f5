"""``fluid.contrib``: mixed precision."""

from . import mixed_precision

__all__ = ["mixed_precision"]
