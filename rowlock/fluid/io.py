"""``fluid.io``: readers."""

from ..executor.data_feeder import batch, shuffle
from ..executor.data_loader import DataLoader, PyReader
from ..names import listing, missing

__all__ = ["DataLoader", "PyReader", "batch", "shuffle"]
__dir__ = listing(__name__)
__getattr__ = missing(__name__)
