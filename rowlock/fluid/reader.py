"""``fluid.reader``: loaders that feed programs."""

from ..executor.loading.data_loader import DataLoader, PyReader
from ..names import listing, missing

__all__ = ["DataLoader", "PyReader"]
__dir__ = listing(__name__)
__getattr__ = missing(__name__)
