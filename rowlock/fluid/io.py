"""``fluid.io``: readers."""

from ..executor.data_feeder import batch, shuffle
from ..executor.data_loader import DataLoader, PyReader

__all__ = ["DataLoader", "PyReader", "batch", "shuffle"]
