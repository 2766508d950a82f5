"""Samplers: the order of samples, and the samples of each batch."""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator, Sequence, Sized
from typing import Any

import numpy as np

from ...strategies.errors import InvalidArgument, InvalidType, InvalidValue
from .datasets import IterableDataset
from .sample_readers import batch


class Sampler:
    """Numbers of samples, in some order. A subclass defines ``__iter__``, and ``__len__`` for batches."""

    def __init__(self, data_source: Sized | None = None) -> None:
        self.data_source = data_source

    def __iter__(self) -> Iterator[Any]:
        raise NotImplementedError(f"{type(self).__name__} does not define __iter__.")


class SequenceSampler(Sampler):
    """0, 1, 2, … up to the length of ``data_source``."""

    data_source: Sized

    def __iter__(self) -> Iterator[int]:
        return iter(range(len(self.data_source)))

    def __len__(self) -> int:
        return len(self.data_source)


class RandomSampler(Sampler):
    """``num_samples`` numbers drawn by NumPy's global generator, with or without ``replacement``.

    ``generator``: an iterator of numbers that takes the place of drawing.

    Raises:
        InvalidType: ``replacement`` is no bool.
        InvalidValue: ``num_samples`` is not above 0, or too large.
    """

    data_source: Sized

    def __init__(
        self,
        data_source: Sized,
        replacement: bool = False,
        num_samples: int | None = None,
        generator: Iterator[int] | None = None,
    ) -> None:
        super().__init__(data_source)
        if not isinstance(replacement, bool):
            raise InvalidType(f"replacement must be a bool, got {replacement!r}.")
        self.replacement = replacement
        self._num_samples = num_samples
        self.generator = generator
        _check_count(self.num_samples)
        if not replacement and self.num_samples > len(data_source):
            raise InvalidValue(
                f"num_samples={num_samples} is more than the {len(data_source)} samples, which are "
                f"drawn once each (replacement=False)."
            )

    @property
    def num_samples(self) -> int:
        """How many numbers are drawn; by default as many as there are samples."""
        return len(self.data_source) if self._num_samples is None else self._num_samples

    def __iter__(self) -> Iterator[int]:
        if self.generator is not None:
            for _, number in zip(range(self.num_samples), self.generator, strict=False):
                yield number
            return
        numbers = np.random.choice(
            np.arange(len(self.data_source)), self.num_samples, replace=self.replacement
        )
        yield from numbers.tolist()

    def __len__(self) -> int:
        return self.num_samples


class WeightedRandomSampler(Sampler):
    """``num_samples`` numbers, drawn by weight; weights [rows, n] give as many draws one after the other.

    Raises:
        InvalidValue: ``num_samples`` is not above 0, or ``replacement`` is no bool.
    """

    def __init__(self, weights: Any, num_samples: int, replacement: bool = True) -> None:
        super().__init__()
        _check_count(num_samples)
        if not isinstance(replacement, bool):
            raise InvalidValue(f"replacement must be a bool, got {replacement!r}.")
        self.weights = weights
        self.num_samples = num_samples
        self.replacement = replacement

    def __iter__(self) -> Iterator[int]:
        rows = self._rows()
        for row in rows / rows.sum(axis=1, keepdims=True):
            numbers = np.random.choice(len(row), self.num_samples, self.replacement, row)
            yield from numbers.tolist()

    def _rows(self) -> np.ndarray:
        weights = np.asarray(self.weights)
        if weights.ndim not in (1, 2):
            raise InvalidArgument(f"weights have 1 or 2 dimensions, got shape {weights.shape}.")
        rows = weights.reshape(-1, weights.shape[-1])
        if not np.isfinite(rows).all() or (rows < 0).any():
            raise InvalidArgument("weights must be finite and not below 0.")
        least = 1 if self.replacement else self.num_samples
        if ((rows > 0).sum(axis=1) < least).any():
            raise InvalidArgument(f"at least {least} weight(s) must be above 0.")
        return rows

    def __len__(self) -> int:
        shape = np.shape(self.weights)
        return self.num_samples * (shape[0] if len(shape) > 1 else 1)


class SubsetRandomSampler(Sampler):
    """These numbers, in an order drawn by NumPy's global generator.

    Raises:
        InvalidValue: there are none.
    """

    def __init__(self, indices: Sequence[int]) -> None:
        super().__init__()
        if len(indices) == 0:
            raise InvalidValue("SubsetRandomSampler needs at least one index.")
        self.indices = indices

    def __iter__(self) -> Iterator[int]:
        for position in np.random.permutation(len(self.indices)).tolist():
            yield self.indices[position]

    def __len__(self) -> int:
        return len(self.indices)


class BatchSampler:
    """Lists of ``batch_size`` numbers: of a ``sampler``, or of a data set in order or shuffled.

    Raises:
        InvalidArgument: arguments contradict each other or are of wrong types.
    """

    def __init__(
        self,
        dataset: Sized | None = None,
        sampler: Iterable[int] | None = None,
        shuffle: bool = False,
        batch_size: int = 1,
        drop_last: bool = False,
    ) -> None:
        self.sampler = _sampler(dataset, sampler, shuffle)
        _check_batches(batch_size, shuffle, drop_last)
        self.batch_size = batch_size
        self.shuffle = shuffle
        self.drop_last = drop_last

    def __iter__(self) -> Iterator[list[int]]:
        return iter(batch(lambda: self.sampler, self.batch_size, self.drop_last)())

    def __len__(self) -> int:
        return _count(len(self.sampler), self.batch_size, self.drop_last)  # type: ignore[arg-type]


class DistributedBatchSampler(BatchSampler):
    """The batches of one of ``num_replicas`` processes that each read a part of a data set.

    In Rowlock one driver feeds all replicas, so by default there is one process, and it reads everything.
    The data set is padded with its first samples until all have as many. ``set_epoch`` chooses the shuffle.
    """

    def __init__(
        self,
        dataset: Sized,
        batch_size: int,
        num_replicas: int | None = None,
        rank: int | None = None,
        shuffle: bool = False,
        drop_last: bool = False,
    ) -> None:
        _check_batches(batch_size, shuffle, drop_last)
        self.dataset = dataset
        self.batch_size = batch_size
        self.shuffle = shuffle
        self.drop_last = drop_last
        self.nranks = 1 if num_replicas is None else num_replicas
        self.local_rank = 0 if rank is None else rank
        if not isinstance(self.nranks, int) or self.nranks < 1:
            raise InvalidArgument(f"num_replicas must be above 0, got {num_replicas!r}.")
        if not isinstance(self.local_rank, int) or not 0 <= self.local_rank < self.nranks:
            raise InvalidArgument(f"rank must be from 0 to {self.nranks - 1}, got {rank!r}.")
        self.epoch = 0
        self.num_samples = math.ceil(len(dataset) / self.nranks)
        self.total_size = self.num_samples * self.nranks

    def __iter__(self) -> Iterator[list[int]]:
        order = [i % len(self.dataset) for i in range(self.total_size)]
        if self.shuffle:
            np.random.RandomState(self.epoch).shuffle(order)
            self.epoch += 1
        # Rounds of one batch each; the remainder is cut into equal parts.
        in_rounds = self.total_size - self.total_size % (self.batch_size * self.nranks)
        rounds = np.array(order[:in_rounds], int).reshape(-1, self.nranks, self.batch_size)
        remainder = np.array(order[in_rounds:], int).reshape(self.nranks, -1)
        own = rounds[:, self.local_rank].ravel().tolist() + remainder[self.local_rank].tolist()
        return iter(batch(lambda: own, self.batch_size, self.drop_last)())

    def __len__(self) -> int:
        return _count(self.num_samples, self.batch_size, self.drop_last)

    def set_epoch(self, epoch: int) -> None:
        """Choose the shuffle of the next iteration; each iteration adds one."""
        self.epoch = epoch


def _sampler(dataset: Any, sampler: Any, shuffle: Any) -> Iterable[int]:
    if dataset is None:
        if not isinstance(sampler, Iterable):
            raise InvalidArgument(f"BatchSampler needs a data set or a sampler, got {sampler!r}.")
        if shuffle:
            raise InvalidArgument("a sampler decides the order: shuffle is for a data set.")
        return sampler
    if sampler is not None:
        raise InvalidArgument("BatchSampler takes a data set or a sampler, not both.")
    if isinstance(dataset, IterableDataset):
        raise InvalidArgument("an IterableDataset has no numbers to sample.")
    return RandomSampler(dataset) if shuffle else SequenceSampler(dataset)


def _check_batches(batch_size: Any, shuffle: Any, drop_last: Any) -> None:
    if not isinstance(batch_size, int) or isinstance(batch_size, bool) or batch_size < 1:
        raise InvalidArgument(f"batch_size must be a whole number above 0, got {batch_size!r}.")
    for name, value in (("shuffle", shuffle), ("drop_last", drop_last)):
        if not isinstance(value, bool):
            raise InvalidArgument(f"{name} must be a bool, got {value!r}.")


def _check_count(num_samples: Any) -> None:
    if not isinstance(num_samples, int) or num_samples < 1:
        raise InvalidValue(f"num_samples must be a whole number above 0, got {num_samples!r}.")


def _count(samples: int, size: int, drop_last: bool) -> int:
    return samples // size if drop_last else math.ceil(samples / size)
