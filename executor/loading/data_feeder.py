"""From samples to arrays: DataFeeder."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from itertools import chain, islice
from typing import Any

import numpy as np

from ...graph.program.program import Program, default_main_program
from ...graph.program.variable import Variable
from ...strategies.errors import FeedError, InvalidType, InvalidValue
from ...strategies.types import VarType, to_numpy
from ..device.place import CUDAPlace, cpu_places, cuda_places
from ..device.tensor import Tensor, create_lod_tensor
from ..feed.reader import Batch
from .sample_readers import Generator


class DataFeeder:
    """Turns samples (tuples with one value per variable) into the feed of a program.

    Raises:
        InvalidType: ``feed_list`` is no list, or holds something else than variables or names.
    """

    def __init__(
        self, feed_list: Sequence[Variable | str], place: Any, program: Program | None = None
    ) -> None:
        block = (default_main_program() if program is None else program).global_block()
        if not isinstance(feed_list, (list, tuple)):
            raise InvalidType(
                f"DataFeeder: feed_list must be a list of variables or their names, got {feed_list!r}."
            )
        self.variables: list[Variable] = []
        for item in feed_list:
            variable = block.var(item) if isinstance(item, str) else item
            if not isinstance(variable, Variable):
                raise InvalidType(
                    f"DataFeeder: feed_list holds variables or their names, got {item!r}."
                )
            self.variables.append(variable)
        self.place = place
        self._columns = Columns(self.variables)

    def feed(self, iterable: Iterable[Sequence[Any]]) -> dict[str, Any]:
        """Return a mini-batch of samples as arrays by variable name, in the variables' dtypes.

        Raises:
            FeedError: a sample has another number of values than there are variables.
        """
        return self._columns.of_samples(iterable)

    def feed_parallel(
        self, iterable: Sequence[Iterable[Any]], num_places: int | None = None
    ) -> Iterator[dict[str, Any]]:
        """Yield one feed a place from as many mini-batches.

        Without ``num_places`` there are as many places as CPUs or GPUs of the kind of ``place``.

        Raises:
            InvalidValue: there are more or fewer mini-batches than places.
        """
        places = self._count(num_places)
        batches = list(iterable)
        if len(batches) != places:
            raise InvalidValue(
                f"feed_parallel got {len(batches)} mini-batches for {places} places."
            )
        return (self.feed(batch) for batch in batches)

    def _count(self, num_places: int | None) -> int:
        if num_places is not None:
            return int(num_places)
        return len(cuda_places() if isinstance(self.place, CUDAPlace) else cpu_places())

    def decorate_reader(
        self,
        reader: Generator,
        multi_devices: bool,
        num_places: int | None = None,
        drop_last: bool = True,
    ) -> Callable[[], Iterator[Any]]:
        """Return a reader of feeds: dicts, or with ``multi_devices`` lists of a dict per place."""

        def feeds() -> Iterator[Any]:
            if not multi_devices:
                yield from map(self.feed, reader())
                return
            places = self._count(num_places)
            batches = iter(reader())
            while group := list(islice(batches, places)):
                if len(group) == places:
                    yield [self.feed(batch) for batch in group]
                elif not drop_last:
                    raise InvalidValue(f"{len(group)} batches are left for {places} places.")

        return feeds


class Columns:
    """Names, shapes and types of the variables to feed; unlike them, they do not keep a program alive."""

    def __init__(self, variables: Sequence[Variable]) -> None:
        self.names = [variable.name for variable in variables]
        self._columns = [
            (v.name, tuple(v.shape or ()), np.dtype(to_numpy(v.dtype or VarType.FP32)), v.lod_level)
            for v in variables
        ]

    def of_samples(self, samples: Iterable[Sequence[Any]]) -> dict[str, Any]:
        """Return samples as a batch."""
        columns: list[list[Any]] = [[] for _ in self.names]
        if not isinstance(samples, Iterable):
            raise FeedError(f"a batch is a list of samples, got {type(samples).__name__}.")
        for number, sample in enumerate(samples):
            if not isinstance(sample, (list, tuple, np.ndarray)):
                raise FeedError(f"a sample is a tuple of values, got {type(sample).__name__}.")
            if len(sample) != len(columns):
                raise FeedError(
                    f"sample {number} of a batch has {len(sample)} value(s) for {len(columns)} variable(s): "
                    f"yield one for each of {', '.join(self.names)}, in this order."
                )
            for column, value in zip(columns, sample, strict=True):
                column.append(value)
        pairs = zip(self._columns, columns, strict=True)
        return {entry[0]: _join(*entry, column) for entry, column in pairs}

    def of_arrays(self, arrays: Any) -> Batch:
        """Return copies of the arrays of a batch by name: the generator may fill its own anew."""
        if isinstance(arrays, (np.ndarray, Tensor)):
            arrays = (arrays,)
        if not isinstance(arrays, (list, tuple)):
            raise FeedError(
                f"a batch generator yields tuples of arrays, got {type(arrays).__name__}."
            )
        if len(arrays) != len(self.names):
            raise FeedError(
                f"a batch has {len(arrays)} array(s) for {len(self.names)} variable(s): "
                f"yield one for each of {', '.join(self.names)}, in this order."
            )
        return dict(zip(self.names, map(_copy, arrays), strict=True))


def _copy(value: Any) -> Any:
    if isinstance(value, np.ndarray):
        return value.copy()
    if not isinstance(value, Tensor):
        return value
    clone = Tensor(value.name)
    clone.set(value.memory())
    clone.set_lod(value.lod())
    return clone


def _join(name: str, shape: tuple[int, ...], dtype: Any, level: int, values: list[Any]) -> Any:
    """Return the values of one variable, a sample's each, as an array, or as sequences if it has levels."""
    lengths = []
    rows: Any = values
    for depth in range(level):
        lengths.append([_length(name, value, depth, level) for value in rows])
        plain = depth + 1 == level and rows and all(isinstance(row, np.ndarray) for row in rows)
        rows = _stack_rows(rows) if plain else list(chain.from_iterable(rows))
    array = _shaped(name, shape, _convert(name, rows, dtype))
    return create_lod_tensor(array, lengths, None) if level else array


def _length(name: str, value: Any, depth: int, level: int) -> int:
    try:
        return len(value)
    except TypeError:
        raise FeedError(
            f"a sample of {name!r} is nested {level} deep (its lod_level), and holds "
            f"{type(value).__name__} {value!r} at depth {depth}."
        ) from None


def _stack_rows(sequences: list[np.ndarray]) -> Any:
    """Return the rows of arrays, as an array where they are alike."""
    alike = {(sequence.dtype, sequence.shape[1:]) for sequence in sequences}
    return np.concatenate(sequences) if len(alike) == 1 else list(chain.from_iterable(sequences))


def _shaped(name: str, shape: tuple[int, ...], array: np.ndarray) -> np.ndarray:
    """Return rows in the declared shape, unless they have its rank, or it leaves several sizes open."""
    if array.ndim == len(shape) or sum(size < 0 for size in shape) > 1:
        return array
    rows = (len(array),) if shape[:1] == (-1,) else shape[:1]
    try:
        return array.reshape(*rows, *shape[1:])
    except ValueError:
        raise FeedError(
            f"the samples of {name!r} have shape {list(array.shape)} together, "
            f"which does not fit the declared {list(shape)}."
        ) from None


def _convert(name: str, values: Any, dtype: np.dtype) -> np.ndarray:
    """Return values as an array of this dtype.

    Raises:
        FeedError: they are of different shapes, no numbers, or some do not fit.
    """
    try:
        with np.errstate(over="raise", invalid="raise"):
            array = np.asarray(values, dtype)
        alike = all(getattr(value, "dtype", None) == dtype for value in values)
        plain = array if alike else np.asarray(values)
    except Exception as error:  # a sample may be an object with conversions of its own
        raise FeedError(
            f"the samples of {name!r} cannot be joined as {dtype}: {_difference(values) or error}."
        ) from None
    # NumPy takes the real part, a count of days, NaN or the low bits of an integer without a warning.
    wrong = plain.dtype.kind in "cmM" or (plain.dtype == object and None in plain.ravel().tolist())
    if not wrong and dtype.kind in "iu" and plain.dtype.kind in "iu" and plain.size:
        wrong = not np.can_cast(plain.dtype, dtype) and bool((plain != array).any())
    if wrong:
        raise FeedError(
            f"the samples of {name!r} cannot be joined as {dtype}: {plain.dtype} values do not fit."
        )
    return array


def _difference(values: Any) -> str:
    """Return how the first samples of different shapes differ; "" if that is not why they cannot be joined."""
    try:
        shapes = [np.shape(value) for value in values]
    except Exception:
        return ""
    for i, shape in enumerate(shapes):
        if shape != shapes[0]:
            return (
                f"sample 0 has shape {list(shapes[0])}, sample {i} has {list(shape)}; make them alike, or "
                f"declare the variable with lod_level=1 if they are sequences"
            )
    return ""
