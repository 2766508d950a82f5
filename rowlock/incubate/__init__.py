"""``paddle.incubate``."""

from ..names import listing, missing
from . import optimizer
from .optimizer import LookAhead, ModelAverage

__all__ = ["LookAhead", "ModelAverage", "optimizer"]
__dir__ = listing(__name__)
__getattr__ = missing(__name__)
