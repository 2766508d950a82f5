"""Read the names of a fetch list, and join the places' values of a fetch."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from functools import lru_cache
from typing import Any, NamedTuple

import numpy as np

from ...graph.ir.graph import OpKey
from ...graph.program.operator import Operator
from ...graph.program.role import OpRole
from ...graph.program.variable import Variable
from ...strategies.errors import InvalidArgument, InvalidType, InvalidValue, SequenceError
from ..device.tensor import LoD, Tensor


def fetch_names_of(fetch_list: Any) -> tuple[tuple[str, ...], tuple[OpKey, ...]]:
    """Return the names in a fetch list, and the optimize ops in it.

    An item may be a list, or what ``minimize`` returns: its optimize ops, behind which come gradients.

    Raises:
        InvalidArgument: it is no list, tuple, Variable or name.
        InvalidType: an item is neither a Variable, a name nor an optimize op.
    """
    if fetch_list is None:
        return (), ()
    if isinstance(fetch_list, (str, Variable)):
        fetch_list = [fetch_list]
    if not isinstance(fetch_list, (list, tuple)):
        cure = (
            " A dict is a feed: write feed=..., fetch_list=..."
            if isinstance(fetch_list, dict)
            else ""
        )
        raise InvalidArgument(
            f"fetch_list must be a list of variables, got {type(fetch_list).__name__}.{cure}"
        )
    names: list[str] = []
    updates: list[OpKey] = []
    for item in _flattened(fetch_list):
        if isinstance(item, Variable):
            names.append(item.name)
        elif isinstance(item, str):
            names.append(item)
        elif isinstance(item, Operator) and item.role & OpRole.Optimize:
            reads, writes = map(frozenset, (item.input_arg_names, item.output_arg_names))
            updates.append((item.type, reads, writes))
        elif isinstance(item, Operator):
            raise InvalidType(
                f"fetch_list holds operator {item.type}, which is not an optimize op: fetch its outputs."
            )
        else:
            raise InvalidType(f"fetch_list holds variables or their names, got {item!r}.")
    return tuple(names), tuple(updates)


def _flattened(fetch_list: Iterable[Any]) -> Iterator[Any]:
    for item in fetch_list:
        if isinstance(item, tuple) and item and isinstance(item[0], list):
            yield from item[0]
        elif isinstance(item, list):
            yield from item
        else:
            yield item


class FetchedArray(np.ndarray):
    """A fetched array; while it has a single element, it converts to a number and formats as one.

    Programs format losses of shape [1], and rows of shape [1] of a prediction, with ``%f``, which NumPy's own
    arrays no longer do.
    """

    def __float__(self) -> float:
        return float(self.item()) if self.size == 1 else super().__float__()

    def __int__(self) -> int:
        return int(self.item()) if self.size == 1 else super().__int__()

    def __format__(self, spec: str) -> str:
        return format(self.item(), spec) if spec and self.size == 1 else super().__format__(spec)

    def __repr__(self) -> str:
        """Return NumPy's own text, as printed by programs for Paddle."""
        return repr(self.view(np.ndarray))

    def __array_wrap__(
        self, array: np.ndarray, context: Any = None, return_scalar: bool = False
    ) -> Any:
        """Return NumPy's result as it is: scalars stay scalars."""
        return np.asarray(array)[()] if return_scalar else array.view(FetchedArray)

    def __reduce__(self) -> Any:
        """Pickle as a plain array, which is read without this package."""
        return self.view(np.ndarray).__reduce__()


def as_fetched(array: np.ndarray) -> np.ndarray:
    """Return an array as users get it."""
    return array.view(FetchedArray)


class Joined:
    """The values of one fetch from all places: ``parts`` in place order (or stacked), and their LoDs.

    A LoD that does not end where the rows end belongs to an operand of the value, and is left out.
    """

    def __init__(
        self, name: str, parts: Sequence[np.ndarray] | np.ndarray, lods: Sequence[LoD]
    ) -> None:
        self.name = name
        self.parts: Sequence[np.ndarray] | np.ndarray
        if isinstance(parts, np.ndarray):
            self.parts = parts if parts.ndim > 1 else parts[:, np.newaxis]
        else:
            self.parts = [part if part.ndim else part.reshape(1) for part in parts]
        self.lods = _of_rows(lods, list(self.parts)) if lods else []

    def separate(self, return_numpy: bool) -> list[Any]:
        """Return one value per place."""
        if return_numpy:
            for lod in self.lods:
                self._refuse_sequences(lod)
            return [as_fetched(part) for part in self.parts]
        lods = self.lods or [()] * len(self.parts)
        return [as_tensor(self.name, p, lod) for p, lod in zip(self.parts, lods, strict=True)]

    def merged(self, return_numpy: bool) -> Any:
        """Return the values concatenated on dim 0, sequences after sequences.

        Raises:
            InvalidValue: shapes of places with rows differ in other dimensions than the first, or dtypes do.
            SequenceError: the values hold sequences, and ``return_numpy`` is True.
        """
        array = self._concatenated()
        lod = joined_lods(self.lods) if self.lods else ()
        if return_numpy:
            if lod:
                self._refuse_sequences(lod)
            return as_fetched(array)
        return as_tensor(self.name, array, lod)

    def _concatenated(self) -> np.ndarray:
        if isinstance(self.parts, np.ndarray):
            shape = self.parts.shape
            return self.parts.reshape((shape[0] * shape[1], *shape[2:]))
        parts = [part for part in self.parts if len(part)] or self.parts[:1]
        first = parts[0]
        for part in parts:
            if part.shape[1:] != first.shape[1:] or part.dtype != first.dtype:
                shapes = ", ".join(f"{list(each.shape)} {each.dtype}" for each in self.parts)
                raise InvalidValue(
                    f"fetch {self.name!r}: the places' values cannot be joined on dim 0: {shapes}. "
                    f"Use return_merged=False."
                )
        return first if len(parts) == 1 else np.concatenate(parts)

    def _refuse_sequences(self, lod: LoD) -> None:
        if lod:
            raise SequenceError(
                f"fetch {self.name!r} holds sequences (LoD of {len(lod)} level(s)), which a NumPy array "
                f"cannot tell. Use return_numpy=False."
            )


class Fetches(NamedTuple):
    """What a run is to return: variables, as NumPy arrays or tensors, joined over places or for each place.

    ``updates`` are the ops that are run beside, and what they need (None: every op is; without any: all that
    the program trains by, see :func:`compile_program`).
    """

    names: tuple[str, ...] = ()
    as_numpy: bool = True
    merged: bool = True
    updates: tuple[OpKey | str, ...] | None = None

    @property
    def needs(self) -> tuple[tuple[str, ...], tuple[OpKey | str, ...] | None]:
        """What a program is compiled for: another pair is another variant of it."""
        return self.names, self.updates

    def of(self, joined: Iterable[Joined]) -> list[Any]:
        """Return the values from the places in the form that was asked for."""
        if self.merged:
            return [part.merged(self.as_numpy) for part in joined]
        return [part.separate(self.as_numpy) for part in joined]


@lru_cache(256)
def fetches_of(
    names: tuple[str, ...],
    as_numpy: bool,
    merged: bool = True,
    updates: tuple[OpKey | str, ...] | None = None,
) -> Fetches:
    """Return the record of what a user asks for, cached: making it anew adds a fiftieth to a short step."""
    return Fetches(names, as_numpy, merged, updates)


def _of_rows(lods: Sequence[LoD], parts: Sequence[np.ndarray]) -> list[LoD]:
    """Return the LoDs that end where the rows of their parts end; none at all if a part with rows has none."""
    ends = [
        lod if lod and len(lod[0]) > 1 and lod[-1][-1] == len(part) else ()
        for lod, part in zip(lods, parts, strict=True)
    ]
    if any(len(part) and not lod for lod, part in zip(ends, parts, strict=True)):
        return [()] * len(ends)
    return ends


def joined_lods(lods: Sequence[LoD]) -> LoD:
    """Return the offsets of all places' sequences behind each other."""
    nonempty = [lod for lod in lods if lod]
    if not nonempty or len({len(lod) for lod in nonempty}) > 1:
        return ()
    levels: list[tuple[int, ...]] = []
    for level in range(len(nonempty[0])):
        offsets = [0]
        for lod in nonempty:
            offsets += [offsets[-1] + end for end in lod[level][1:]] if lod[level] else []
        levels.append(tuple(offsets))
    return tuple(levels)


def as_tensor(name: str, array: np.ndarray, lod: LoD = ()) -> Tensor:
    """Return an array as a tensor."""
    tensor = Tensor(name)
    tensor.set(array)
    if lod:
        tensor.set_lod(lod)
    return tensor
