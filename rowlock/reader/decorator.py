"""``paddle.reader.decorator``: where Paddle keeps ``paddle.reader``."""

from ..executor.loading.sample_readers import (
    ComposeNotAligned,
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
    "buffered",
    "cache",
    "chain",
    "compose",
    "firstn",
    "map_readers",
    "multiprocess_reader",
    "shuffle",
    "xmap_readers",
]
__dir__ = listing(__name__)
__getattr__ = missing(__name__)
