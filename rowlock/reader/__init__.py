"""``paddle.reader``: decorators of readers."""

from ..names import listing, missing
from .decorator import *  # noqa: F403 - that module has the list
from .decorator import __all__ as __all__

__dir__ = listing(__name__)
__getattr__ = missing(__name__)
