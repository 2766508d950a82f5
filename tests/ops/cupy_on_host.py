"""CuPy's own arrays on a simulated GPU: what is done with arrays while kernels are bound is CuPy's work.

    python -m pytest -p tests.ops.cupy_on_host tests/ops/test_cuda_*.py tests/ops/test_c*dnn.py

No GPU is needed. Views, strides, reshaping and element types are real; a reshape that would copy fails, since
that needs a GPU. What CuPy would compute is left to NumPy.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from types import ModuleType, SimpleNamespace
from typing import Any

import cupy
import numpy as np

from rowlock.executor.cuda.cupy_runtime import _argument
from rowlock.executor.cuda.gemm import Gemm, Operands, ReferenceBlas
from rowlock.executor.cuda.kernel import CudaKernel
from rowlock.executor.cuda.runtime import Captured, Dims, Step
from rowlock.executor.device import gpus
from rowlock.executor.host.host_memory import aligned
from rowlock.executor.simulated import simulated
from rowlock.executor.simulated.reference_dnn import ReferenceDnn
from rowlock.executor.simulated.streams import is_in_graph
from tests.ops import gpu

_MOST_BLOCKS = (1 << 31) - 1, 65535, 65535
_REDUCTIONS = ("sum", "prod", "max", "min", "all", "any")


class Place(SimpleNamespace):
    """An array's memory as NumPy takes it; 16-bit floats that it has no letter for go as their bits."""

    def __init__(self, array: Any) -> None:
        kind = array.dtype.str if array.dtype.name != "bfloat16" else "<u2"
        super().__init__(
            array=array,
            __array_interface__={
                **{"data": (array.data.ptr or 256, False), "shape": array.shape},
                **{"strides": array.strides, "typestr": kind, "version": 3},
            },
        )


def host(array: Any) -> Any:
    """Return a CuPy array's memory as NumPy's; anything else as it is."""
    if isinstance(array, cupy.ndarray):
        memory = np.asarray(Place(array))
        return memory if memory.dtype == array.dtype else memory.view(array.dtype)
    if isinstance(array, list | tuple):
        return type(array)(host(one) for one in array)
    return array


def on_host(function: Callable[..., Any]) -> Callable[..., Any]:
    """Return a function of NumPy that takes CuPy's arrays."""

    def call(*arrays: Any, **named: Any) -> Any:
        return function(*map(host, arrays), **{name: host(value) for name, value in named.items()})

    return call


class HostArray(cupy.ndarray):  # type: ignore[misc]
    """An array of CuPy over host memory."""

    def get(self, *_how: Any) -> np.ndarray:
        assert not is_in_graph(), "a graph holds a copy to memory that is not page-locked"
        return np.array(host(self))

    def fill(self, value: Any) -> None:
        host(self).fill(value)

    def __getitem__(self, index: Any) -> Any:
        parts = index if isinstance(index, tuple) else (index,)
        if any(isinstance(part, cupy.ndarray | np.ndarray | list) for part in parts):
            return Module("cupy").asarray(host(self)[host(index)])
        return super().__getitem__(index)

    def __setitem__(self, index: Any, value: Any) -> None:
        host(self)[host(index)] = host(value)

    def __eq__(self, other: object) -> Any:
        return host(self) == host(other)

    def __getattribute__(self, name: str) -> Any:
        return (
            on_host(getattr(host(self), name))
            if name in _REDUCTIONS
            else super().__getattribute__(name)
        )


def _operator(name: str) -> Callable[..., Any]:
    def compute(self: HostArray, other: Any) -> Any:
        result = getattr(host(self), name)(host(other))
        return self if name.startswith("__i") else Module("cupy").asarray(result)

    return compute


for _name in ("add", "sub", "mul", "truediv", "floordiv", "mod", "or", "and", "matmul"):
    for _form in (f"__{_name}__", f"__i{_name}__"):
        setattr(HostArray, _form, _operator(_form))
for _name in ("lt", "le", "gt", "ge"):
    setattr(HostArray, f"__{_name}__", _operator(f"__{_name}__"))


def array_of(shape: Any, dtype: Any, memory: np.ndarray | None = None) -> HostArray:
    """Return an array over host memory, its own if none is given."""
    dtype = np.dtype(dtype)
    shape = shape if isinstance(shape, tuple) else (shape,)
    size = max(int(np.prod(shape, dtype=np.int64)) * dtype.itemsize, 1)
    if memory is None:
        memory = aligned(size)
        simulated.ALLOCATED[memory.ctypes.data] = size
    unowned = cupy.cuda.UnownedMemory(memory.ctypes.data, size, memory, 0)
    return HostArray(shape, dtype, memptr=cupy.cuda.MemoryPointer(unowned, 0))


class Module(ModuleType):
    """The array module: CuPy's names, NumPy's arithmetic."""

    ndarray, ufunc = cupy.ndarray, np.ufunc
    broadcast_to = staticmethod(cupy.broadcast_to)  # a view
    lib = cupy.lib
    linalg = SimpleNamespace(inv=on_host(np.linalg.inv), cholesky=on_host(np.linalg.cholesky))

    def empty(self, shape: Any, dtype: Any = float) -> HostArray:
        return array_of(shape, dtype)

    def zeros(self, shape: Any, dtype: Any = float) -> HostArray:
        array = array_of(shape, dtype)
        array.fill(0)
        return array

    def ones(self, shape: Any, dtype: Any = float) -> HostArray:
        array = array_of(shape, dtype)
        array.fill(1)
        return array

    def full(self, shape: Any, value: Any, dtype: Any = float) -> HostArray:
        array = array_of(shape, dtype)
        array.fill(value)
        return array

    def empty_like(self, array: Any) -> HostArray:
        return array_of(array.shape, array.dtype)

    def asarray(self, value: Any, dtype: Any = None) -> HostArray:
        if isinstance(value, HostArray):
            return value
        assert not is_in_graph(), "a graph holds a copy from memory that is not page-locked"
        value = np.asarray(value, dtype)
        array = array_of(value.shape, value.dtype)
        array[...] = value
        return array

    def __getattr__(self, name: str) -> Any:
        if name.startswith("__"):  # Python asks
            raise AttributeError(name)
        assert hasattr(cupy, name), f"CuPy has no {name}"
        fn = getattr(np, name)
        known: Any = on_host(fn) if callable(fn) and not isinstance(fn, type) else fn
        if isinstance(fn, np.ufunc):
            known.reduce = on_host(fn.reduce)
        elif callable(fn):
            known.__name__ = fn.__name__
        setattr(self, name, known)  # by which a function is told from others
        return known


class Blas(ReferenceBlas):
    def bind(self, gemm: Gemm, operands: Operands, workspace: Any) -> Step:
        o = operands
        return super().bind(gemm, Operands(*map(host, (o.a, o.b, o.d, o.bias, o.aux))), workspace)


class Dnn(ReferenceDnn):
    def bind(self, graph: Any, arrays: Any, workspace: Any) -> Any:
        return super().bind(graph, {name: host(a) for name, a in arrays.items()}, workspace)


class HostCupy(simulated.SimulatedRuntime):
    """A simulated GPU whose arrays are CuPy's."""

    xp = Module("cupy")  # type: ignore[assignment]
    blas, dnn = Blas(), Dnn()

    def empty(self, nbytes: int) -> Any:
        return array_of(nbytes, np.uint8, super().empty(nbytes) if nbytes else None)

    def on_host(self, array: Any) -> bool:
        return isinstance(array, np.ndarray)

    def address(self, array: Any) -> int:
        return int(array.data.ptr) if isinstance(array, cupy.ndarray) else super().address(array)

    def launch(self, kernel: CudaKernel, grid: Dims, block: Dims, arguments: Sequence[Any]) -> Step:
        assert all(n <= most for n, most in zip(grid, _MOST_BLOCKS, strict=True)), (
            kernel.name,
            grid,
        )
        assert np.prod(block) <= kernel.block <= 1024, (kernel.name, block)
        for (kind, name), argument in zip(kernel.parameters, arguments, strict=True):
            right = argument is None or isinstance(argument, cupy.ndarray)
            right = right or (isinstance(argument, np.ndarray) and argument in self._pinned)
            assert right or not kind.endswith("*"), (
                f"{kernel.name} is given {type(argument)} as {name}"
            )
            _argument(kind, argument)
        return super().launch(kernel, grid, block, [host(argument) for argument in arguments])

    def copy(self, target: Any, source: Any, stream: Any) -> None:
        _same_bytes(target, source)
        sides = [side for side in (target, source) if isinstance(side, np.ndarray)]
        assert not is_in_graph() or all(side in self._pinned for side in sides), (
            "a graph holds a copy between memory that is not page-locked"
        )
        super().copy(host(target), host(source), stream)

    def copying(self, target: Any, source: Any) -> Step:
        _same_bytes(target, source)
        return Captured(np.copyto, host(target), host(source).reshape(target.shape))


def _same_bytes(target: Any, source: Any) -> None:
    """Refuse what a copy of bytes, which knows no strides, would get wrong."""
    assert target.nbytes == source.nbytes
    plain = target.flags.c_contiguous and source.flags.c_contiguous
    assert plain or (target.shape, target.strides) == (source.shape, source.strides)


def pytest_configure(config: Any) -> None:
    """Have tests compute on it."""
    gpu.SimulatedRuntime = gpus.SimulatedRuntime = HostCupy  # type: ignore[misc]
