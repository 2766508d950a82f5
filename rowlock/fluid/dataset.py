"""``fluid.dataset``."""

from ..names import listing, missing

__all__: list[str] = []
__dir__ = listing(__name__)
__getattr__ = missing(__name__)
