"""``paddle.dataset``: public data sets, read from the cache folder or downloaded into it.

* Public data sets: ``rowlock/dataset/common.py`` finds, checks and downloads files and reads archives
  without unpacking them; a module beside it for each set knows its format.
  ``tests/reference/dataset_files.py`` writes small ones.
"""

from __future__ import annotations

import importlib
from types import ModuleType

from ..names import missing, publish_listed

__all__ = [
    "cifar",
    "common",
    "conll05",
    "flowers",
    "image",
    "imdb",
    "imikolov",
    "mnist",
    "movielens",
    "mq2007",
    "sentiment",
    "uci_housing",
    "voc2012",
    "wmt14",
    "wmt16",
]


def __getattr__(name: str) -> ModuleType:
    if name in __all__:
        return importlib.import_module(f".{name}", __name__)
    return missing(__name__)(name)


publish_listed(__name__)
