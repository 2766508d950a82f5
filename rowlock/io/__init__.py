"""``paddle.io``: data sets, samplers, and loaders of their batches."""

from ..executor.loading.data_loader import DataLoader as _FluidDataLoader
from ..executor.loading.dataset_loader import DatasetLoader
from ..executor.loading.datasets import (
    ChainDataset,
    ComposeDataset,
    ConcatDataset,
    Dataset,
    IterableDataset,
    Subset,
    TensorDataset,
    random_split,
)
from ..executor.loading.samplers import (
    BatchSampler,
    DistributedBatchSampler,
    RandomSampler,
    Sampler,
    SequenceSampler,
    SubsetRandomSampler,
    WeightedRandomSampler,
)
from ..executor.loading.workers import get_worker_info
from ..names import publish_listed

__all__ = [
    "BatchSampler",
    "ChainDataset",
    "ComposeDataset",
    "ConcatDataset",
    "DataLoader",
    "Dataset",
    "DistributedBatchSampler",
    "IterableDataset",
    "RandomSampler",
    "Sampler",
    "SequenceSampler",
    "Subset",
    "SubsetRandomSampler",
    "TensorDataset",
    "WeightedRandomSampler",
    "get_worker_info",
    "random_split",
]


class DataLoader(DatasetLoader):
    __doc__ = DatasetLoader.__doc__
    from_generator = staticmethod(_FluidDataLoader.from_generator)


publish_listed(__name__)
