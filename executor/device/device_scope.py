"""The memory of a program's persistables on one replica: on the host, or on its GPU."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import numpy as np

from ...graph.ops.registry import Spec
from ...strategies.errors import ResourceExhausted
from ...strategies.types import to_numpy
from ..cuda.runtime import Runtime, describe_memory
from ..cuda.transfers import Uploads, device_array, download
from ..host.arena import spec_of
from ..host.writes import Writes
from .tensor import Storage, Tensor


class DeviceScope:
    """Persistables by name; ``writes`` counts writes to them. ``passes``: what kernels gather over batches.

    ``runtime``: the GPU that holds them, except those that a program reads on the host beside it.
    """

    def __init__(self, runtime: Runtime | None = None) -> None:
        self.arrays: dict[str, Any] = {}
        self.writes = Writes()
        self.passes: dict[str, Any] = {}
        self._runtime = runtime
        self._uploads = Uploads(runtime) if runtime is not None else None
        self._beside: set[str] = set()  # names of persistables on the host of the GPU

    @property
    def nbytes(self) -> int:
        """The bytes that they take, on the GPU if there is one."""
        return sum(a.nbytes for name, a in self.arrays.items() if name not in self._beside)

    def migrate(self, sides: Mapping[str, bool]) -> bool:
        """Move persistables to the sides that a program needs (True: the host); tell whether one moved."""
        if self._runtime is None:
            return False
        wrong = [name for name, host in sides.items() if host != (name in self._beside)]
        values = {name: self.read(name) for name in wrong if name in self.arrays}
        self._beside.symmetric_difference_update(wrong)
        for name in values:
            del self.arrays[name]
        self.write(list(values), list(values.values()))
        return bool(values)

    def write(self, names: Sequence[str], values: Sequence[np.ndarray]) -> bool:
        """Write values, and tell whether one has new memory, so that plans must be bound again."""
        self.writes.note()
        change = False
        for name, value in zip(names, values, strict=True):
            array = self.arrays.get(name)
            if array is None or array.shape != value.shape or array.dtype != value.dtype:
                self.arrays[name] = self._new(name, value.shape, value.dtype)
                change = True
            self._fill(name, value)
        return change

    def read(self, name: str) -> np.ndarray:
        """Return a copy on the host."""
        array = self.arrays[name]
        if self._runtime is None or name in self._beside:
            return np.array(array)
        return download(self._runtime, array) if array.size else np.empty(array.shape, array.dtype)

    def spec(self, name: str) -> Spec | None:
        """Return shape and type of a persistable, if it is here."""
        return spec_of(self.arrays[name]) if name in self.arrays else None

    def allocate(self, name: str, spec: Spec) -> Any:
        """Return a persistable's memory; new memory is zero."""
        if name not in self.arrays:
            self.write([name], [np.zeros(spec.shape, to_numpy(spec.dtype))])
        return self.arrays[name]

    def new(self, name: str, spec: Spec) -> Any:
        """Return memory for a persistable's next value, which :meth:`put` makes its own."""
        return self._new(name, spec.shape, to_numpy(spec.dtype))

    def put(self, name: str, array: Any) -> bool:
        """Have memory that :meth:`new` gave be a persistable's; tell whether it had other memory."""
        before = self.arrays.get(name)
        self.arrays[name] = array
        return before is not None and before is not array

    def take(self, other: DeviceScope) -> None:
        """Copy another replica's values of the persistables that both hold."""
        both = [name for name in other.arrays if name in self.arrays]
        self.write(both, [other.read(name) for name in both])

    def _new(self, name: str, shape: tuple[int, ...], dtype: Any) -> Any:
        if self._runtime is None:
            return np.empty(shape, dtype)
        if name in self._beside:
            nbytes = math.prod(shape) * np.dtype(dtype).itemsize
            return self._runtime.pinned(nbytes).view(dtype).reshape(shape)
        try:
            return device_array(self._runtime, shape, dtype)
        except MemoryError as error:
            raise ResourceExhausted(
                f"out of memory: persistable {name!r} ({dtype.name}[{','.join(map(str, shape))}]) does not fit "
                f"beside {self.nbytes:,} bytes of others; {describe_memory(self._runtime)}."
            ) from error

    def _fill(self, name: str, value: np.ndarray) -> None:
        array = self.arrays[name]
        if self._uploads is None or name in self._beside:
            array[...] = value
        elif value.size:
            self._uploads.send(array, value)


class SharedScope(DeviceScope):
    """The driver's own tensors as the device scope of a replica on its thread: nothing is sent or fetched.

    ``home`` returns the tensor of a name, a new one if there is none; ``find`` does not make one. ``arrays``
    are those that plans were bound to.
    """

    def __init__(self, home: Callable[[str], Tensor], find: Callable[[str], Tensor | None]) -> None:
        super().__init__()
        self.writes = Storage.writes
        self._home, self._find = home, find
        self.generation = Storage.generation

    def spec(self, name: str) -> Spec | None:
        """Return shape and type of a persistable, if it holds a value."""
        tensor = self._home(name)
        return spec_of(tensor.memory(newest=False)) if tensor.initialized else None

    def allocate(self, name: str, spec: Spec) -> np.ndarray:
        """Return a tensor's memory; one of another shape or type, to be written first, gets new memory."""
        array = self._home(name).allocate(spec.shape, to_numpy(spec.dtype))
        # What an earlier plan was bound to stays noted: it shows that the tensor moved.
        self.arrays.setdefault(name, array)
        return array

    def put(self, name: str, array: np.ndarray) -> bool:
        """Have memory be a tensor's, whose plans look for themselves whether it has moved."""
        tensor = self._home(name)
        if not tensor.initialized or tensor.memory(newest=False) is not array:
            tensor.adopt(array)
        return False

    @property
    def moved(self) -> bool:
        """Whether a tensor has other memory than a plan was bound to, or none, or is no more."""
        for name, array in self.arrays.items():
            tensor = self._find(name)
            if tensor is None or not tensor.initialized:
                return True
            if tensor.memory(newest=False) is not array:
                return True
        return False
