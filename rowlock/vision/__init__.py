"""``paddle.vision``: :mod:`~rowlock.vision.transforms` of images."""

from ..names import listing, missing
from . import transforms

__all__ = ["transforms"]
__dir__ = listing(__name__)
__getattr__ = missing(__name__)
