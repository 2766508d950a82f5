"""Data sets: samples by number, or one after the other; joined, and divided."""

from __future__ import annotations

import math
from bisect import bisect_right
from collections.abc import Iterable, Iterator, Sequence
from itertools import accumulate, pairwise
from typing import Any, NoReturn

import numpy as np

from ...graph.program.where import warn_user
from ...strategies.errors import InvalidArgument, InvalidType, InvalidValue


class NoLength(InvalidValue, RuntimeError, TypeError):
    """``len()`` of an object that can only be iterated over; being a TypeError lets ``list()`` go on."""


class Dataset:
    """Samples by number. A subclass defines ``__getitem__`` and ``__len__``."""

    def __getitem__(self, idx: int) -> Any:
        raise NotImplementedError(f"{type(self).__name__} does not define __getitem__.")

    def __len__(self) -> int:
        raise NotImplementedError(f"{type(self).__name__} does not define __len__.")


class IterableDataset(Dataset):
    """Samples one after the other. A subclass defines ``__iter__``.

    Each worker of a DataLoader iterates over a copy, which finds its part by ``get_worker_info``.
    """

    def __iter__(self) -> Iterator[Any]:
        raise NotImplementedError(f"{type(self).__name__} does not define __iter__.")

    def __getitem__(self, idx: int) -> NoReturn:
        raise RuntimeError(f"{type(self).__name__} is iterated over; it has no sample {idx!r}.")

    def __len__(self) -> NoReturn:
        raise NoLength(f"{type(self).__name__} is iterated over; it has no length.")


class TensorDataset(Dataset):
    """Rows of arrays: sample i is the tuple of row i of each.

    Raises:
        InvalidArgument: the arrays have different numbers of rows.
    """

    def __init__(self, tensors: Sequence[Any]) -> None:
        self.tensors = [np.asarray(tensor) for tensor in tensors]
        counts = [len(tensor) for tensor in self.tensors]
        if len(set(counts)) != 1:
            raise InvalidArgument(f"the arrays of a TensorDataset have {counts} rows.")

    def __getitem__(self, idx: int) -> tuple[Any, ...]:
        return tuple(tensor[idx] for tensor in self.tensors)

    def __len__(self) -> int:
        return len(self.tensors[0])


class ComposeDataset(Dataset):
    """Data sets side by side: sample i has the values of all their samples i.

    Raises:
        InvalidArgument: there is none, or they have different lengths.
    """

    def __init__(self, datasets: Iterable[Dataset]) -> None:
        self.datasets = _datasets("ComposeDataset", datasets)
        counts = [len(dataset) for dataset in self.datasets]
        if len(set(counts)) != 1:
            raise InvalidArgument(f"the data sets of a ComposeDataset have {counts} samples.")

    def __getitem__(self, idx: int) -> tuple[Any, ...]:
        values: list[Any] = []
        for dataset in self.datasets:
            sample = dataset[idx]
            values.extend(sample if isinstance(sample, (list, tuple)) else [sample])
        return tuple(values)

    def __len__(self) -> int:
        return len(self.datasets[0])


class ConcatDataset(Dataset):
    """Data sets one behind the other, by number; ``cumulative_sizes`` are their ends."""

    def __init__(self, datasets: Iterable[Dataset]) -> None:
        self.datasets = _datasets("ConcatDataset", datasets)
        self.cumulative_sizes = list(accumulate(len(dataset) for dataset in self.datasets))

    def __getitem__(self, idx: int) -> Any:
        count = len(self)
        if not -count <= idx < count:
            raise InvalidValue(f"there is no sample {idx} among {count}.")
        idx %= count
        number = bisect_right(self.cumulative_sizes, idx)
        first = self.cumulative_sizes[number - 1] if number else 0
        return self.datasets[number][idx - first]

    def __len__(self) -> int:
        return self.cumulative_sizes[-1]


class ChainDataset(IterableDataset):
    """Iterable data sets one behind the other."""

    def __init__(self, datasets: Iterable[IterableDataset]) -> None:
        self.datasets = _datasets("ChainDataset", datasets, iterable=True)

    def __iter__(self) -> Iterator[Any]:
        for dataset in self.datasets:
            yield from dataset


class Subset(Dataset):
    """The samples of a data set that have these numbers."""

    def __init__(self, dataset: Dataset, indices: Sequence[int]) -> None:
        self.dataset = dataset
        self.indices = indices

    def __getitem__(self, idx: int) -> Any:
        return self.dataset[self.indices[idx]]

    def __len__(self) -> int:
        return len(self.indices)


def random_split(dataset: Dataset, lengths: Sequence[float], generator: Any = None) -> list[Subset]:
    """Return random parts of a data set: of these lengths, or these shares of it if they add up to 1.

    ``generator`` is one of NumPy's, or None for NumPy's global one.

    Raises:
        InvalidValue: the lengths do not add up to the number of samples.
        InvalidType: ``generator`` draws no permutations.
    """
    count = len(dataset)
    sizes = _sizes(count, lengths)
    if sum(sizes) != count:
        raise InvalidValue(f"the lengths {list(lengths)} do not add up to {count} samples.")
    draws = np.random if generator is None else generator
    if not callable(getattr(draws, "permutation", None)):
        raise InvalidType(f"generator must be a NumPy generator, got {type(generator).__name__}.")
    order = draws.permutation(count).tolist()
    return [Subset(dataset, order[a:b]) for a, b in pairwise(accumulate(sizes, initial=0))]


def _sizes(count: int, lengths: Sequence[float]) -> list[int]:
    total = sum(lengths)
    if not math.isclose(total, 1) or total > 1:
        return [int(length) for length in lengths]
    if any(not 0 <= share <= 1 for share in lengths):
        raise InvalidValue(f"shares are between 0 and 1, got {list(lengths)}.")
    sizes = [math.floor(count * share) for share in lengths]
    for i in range(count - sum(sizes)):
        sizes[i % len(sizes)] += 1
    if 0 in sizes:
        warn_user(f"random_split: a part of {sizes} has no samples.")
    return sizes


def _datasets(kind: str, datasets: Iterable[Any], iterable: bool = False) -> list[Any]:
    """Return the parts of a data set, checked: all or none of them are iterable."""
    parts = list(datasets)
    if not parts:
        raise InvalidArgument(f"{kind} needs at least one data set.")
    for part in parts:
        if isinstance(part, IterableDataset) != iterable:
            expected = (
                "iterable data sets" if iterable else "data sets with numbers, not iterable ones"
            )
            raise InvalidArgument(f"{kind} takes {expected}, got {type(part).__name__}.")
    return parts
