"""``paddle.vision``: :mod:`~rowlock.vision.transforms` of images."""

from ..names import publish_imports
from . import transforms as transforms

publish_imports(__name__, transforms)
