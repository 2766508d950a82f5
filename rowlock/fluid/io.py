"""``fluid.io``: readers."""

from ..executor.data_loader import DataLoader, PyReader, batch, shuffle

__all__ = ["DataLoader", "PyReader", "batch", "shuffle"]
