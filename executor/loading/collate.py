"""Collate samples of a data set into a batch, and a batch into a feed."""

from __future__ import annotations

import numbers
from collections.abc import Callable, Iterator, Mapping, Sequence
from itertools import islice
from typing import Any

import numpy as np

from ...strategies.errors import FeedError, InvalidType
from ..device.tensor import Tensor
from .datasets import Dataset, IterableDataset

Collate = Callable[[Any], Any]


class Exhausted(Exception):
    """An iterable data set has no further batch."""


def default_collate_fn(batch: Sequence[Any]) -> Any:
    """Return samples joined field by field: arrays stacked, numbers in an array, strings in a list.

    Raises:
        FeedError: samples have different numbers of fields.
        InvalidType: a field is nothing of these.
    """
    first = batch[0]
    if isinstance(first, (np.ndarray, Tensor)):
        return np.stack([np.asarray(value) for value in batch])
    if isinstance(first, (numbers.Number, np.generic)):
        return np.array(batch)
    if isinstance(first, (str, bytes)):
        return batch
    if isinstance(first, Mapping):
        return {key: default_collate_fn([sample[key] for sample in batch]) for key in first}
    if isinstance(first, Sequence):
        counts = {len(sample) for sample in batch}
        if len(counts) > 1:
            raise FeedError(f"the samples of a batch have different numbers of fields: {counts}.")
        return [default_collate_fn(field) for field in zip(*batch, strict=True)]
    raise InvalidType(
        f"a sample holds arrays, numbers, strings, lists and dicts, got {type(first).__name__}; "
        f"collate_fn says how other samples are joined."
    )


def default_convert_fn(batch: Any) -> Any:
    """Return one sample as it is, with lists for tuples (the default where samples are not joined)."""
    if isinstance(batch, (np.ndarray, Tensor, str, bytes)):
        return batch
    if isinstance(batch, Mapping):
        return {key: default_convert_fn(value) for key, value in batch.items()}
    if isinstance(batch, Sequence):
        return [default_convert_fn(value) for value in batch]
    return batch


def fetcher(
    dataset: Dataset, batch_size: int | None, batched: bool, collate: Collate, drop_last: bool
) -> Callable[[Any], Any]:
    """Return a function from a batch's numbers to the batch; an iterable data set needs no numbers.

    ``batched``: samples are joined to batches of ``batch_size``; else each is a batch by itself.
    """
    if not isinstance(dataset, IterableDataset):
        if batched:
            return lambda indices: collate([dataset[index] for index in indices])
        return lambda index: collate(dataset[index])
    samples = iter(dataset)

    def next_batch(_: Any) -> Any:
        batch = list(islice(samples, batch_size or 1))
        if not batch or (drop_last and batched and len(batch) < (batch_size or 1)):
            raise Exhausted
        return collate(batch if batched else batch[0])

    return next_batch


def fields(batch: Any) -> Iterator[Any]:
    """Yield the arrays and numbers in a batch, in their order."""
    if isinstance(batch, Mapping):
        batch = list(batch.values())
    if isinstance(batch, (list, tuple)):
        for part in batch:
            yield from fields(part)
    elif isinstance(batch, (np.ndarray, Tensor, numbers.Number, np.generic)):
        yield batch


def by_name(names: Sequence[str], batch: Any) -> dict[str, Any]:
    """Return the fields of a batch by the names of the variables that they feed.

    Raises:
        FeedError: there are more or fewer fields than variables.
    """
    values = list(fields(batch))
    if len(values) != len(names):
        raise FeedError(
            f"a batch has {len(values)} field(s) for the {len(names)} variable(s) of feed_list "
            f"({', '.join(names)})."
        )
    return dict(zip(names, values, strict=True))
