"""``fluid.dataset``: datasets of files for ``Executor.train_from_dataset``."""

from ..executor.loading.dataset_base import DatasetBase as DatasetBase
from ..executor.loading.file_datasets import DatasetFactory as DatasetFactory
from ..executor.loading.file_datasets import InMemoryDataset as InMemoryDataset
from ..executor.loading.file_datasets import QueueDataset as QueueDataset
from ..names import publish_imports

publish_imports(__name__)
