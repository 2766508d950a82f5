"""Tensor: the value of a scope's variable, as users read and write it."""

from __future__ import annotations

from typing import Any, Protocol

import numpy as np

from ..strategies.errors import InvalidValue, NotInitialized


class Link(Protocol):
    """Where a tensor's newest value may be: on the replicas that trained it.

    ``version`` grows with every step that wrote; ``dirty`` names what was written here since.
    """

    version: int
    dirty: set[str]

    def pull(self, name: str) -> np.ndarray:
        """Return the newest value of ``name``."""
        ...


class Storage:
    """Counts replacements of any tensor's memory, so that bound plans know when to look again."""

    generation = 0


class Tensor:
    """One array under a name. Reading gives a copy; ``set`` writes.

    While replicas hold newer values, reading fetches them first, and a write is sent before the next step.
    """

    __slots__ = ("_array", "link", "link_version", "name")

    def __init__(self, name: str = "") -> None:
        self.name = name
        self._array: np.ndarray | None = None
        self.link: Link | None = None
        self.link_version = 0

    @property
    def initialized(self) -> bool:
        """Whether the tensor holds a value."""
        return self._array is not None

    def memory(self, *, newest: bool = True) -> np.ndarray:
        """Return the tensor's own array for the executor, brought up to date unless it is only written.

        Raises:
            NotInitialized: nothing was written yet.
        """
        if newest and self.link is not None:
            self._refresh()
        if self._array is None:
            raise NotInitialized(
                f"variable {self.name!r} holds no value yet. Run its startup program first."
            )
        return self._array

    def allocate(self, shape: tuple[int, ...], dtype: Any) -> np.ndarray:
        """Return the tensor's own array, replaced by a new one unless shape and dtype fit."""
        if self._array is None or self._array.shape != shape or self._array.dtype != dtype:
            self._array = np.zeros(shape, dtype)
            Storage.generation += 1
        return self._array

    def written(self) -> None:
        """Note that the executor wrote the memory: replicas must get it before their next step."""
        if self.link is not None:
            self.link.dirty.add(self.name)
            self.link_version = self.link.version

    def set(self, array: Any, place: Any = None) -> None:
        """Write a value (anything ``numpy.asarray`` takes). ``place`` is accepted as Paddle does.

        Raises:
            InvalidValue: the value is no array of numbers.
        """
        value = np.asarray(array)
        if value.dtype == object or value.dtype.kind in "US":
            raise InvalidValue(f"variable {self.name!r}: cannot hold {value.dtype} values.")
        self.allocate(value.shape, value.dtype)[...] = value
        self.written()

    def numpy(self) -> np.ndarray:
        """Return a copy of the value."""
        return self.memory().copy()

    def shape(self) -> list[int]:
        """Return the value's shape."""
        return list(self.memory().shape)

    def __array__(self, dtype: Any = None, copy: bool | None = None) -> np.ndarray:
        return self.memory().astype(dtype or self.memory().dtype, copy=True)

    def _refresh(self) -> None:
        link = self.link
        assert link is not None
        if self.link_version != link.version and self.name not in link.dirty:
            value = link.pull(self.name)
            self.allocate(value.shape, value.dtype)[...] = value
            self.link_version = link.version

    def __repr__(self) -> str:
        return f"Tensor({self.name!r}, {self._array!r})"
