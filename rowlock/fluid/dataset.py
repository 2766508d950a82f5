"""``fluid.dataset``: datasets of files for ``Executor.train_from_dataset``."""

from ..executor.loading.file_datasets import (
    DatasetBase,
    DatasetFactory,
    InMemoryDataset,
    QueueDataset,
)
from ..names import listing, missing

__all__ = ["DatasetBase", "DatasetFactory", "InMemoryDataset", "QueueDataset"]
__dir__ = listing(__name__)
__getattr__ = missing(__name__)
