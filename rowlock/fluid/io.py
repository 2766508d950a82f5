"""``fluid.io``: readers."""

from ..executor.collate import default_collate_fn
from ..executor.data_loader import DataLoader, PyReader
from ..executor.sample_readers import (
    ComposeNotAligned,
    batch,
    buffered,
    cache,
    chain,
    compose,
    firstn,
    map_readers,
    multiprocess_reader,
    shuffle,
    xmap_readers,
)
from ..names import listing, missing

__all__ = [
    "ComposeNotAligned",
    "DataLoader",
    "PyReader",
    "batch",
    "buffered",
    "cache",
    "chain",
    "compose",
    "default_collate_fn",
    "firstn",
    "map_readers",
    "multiprocess_reader",
    "shuffle",
    "xmap_readers",
]
__dir__ = listing(__name__)
__getattr__ = missing(__name__)
