"""ForeignCall: a call of a C function, and those that do what some calls of NumPy do, to the bit.

A call of NumPy has arrays, of which each plan makes its own; a call of a C function has numbers alone.
"""

from __future__ import annotations

import ctypes
from collections.abc import Callable, Hashable, Sequence
from functools import cache, lru_cache, partial
from typing import Any

import numpy as np

from .cores import openblas
from .numbered import NumberedCall
from .writes import address

_COUNTS_KEPT = 1 << 12
_NUMBERS = ctypes.c_int64, ctypes.c_void_p
_BY_ROW, _AS_IT_LIES, _TRANSPOSED = (ctypes.c_int(n) for n in (101, 111, 112))  # as in cblas.h
_GEMM = {"float32": ("sgemm", ctypes.c_float), "float64": ("dgemm", ctypes.c_double)}
_SYMBOLS = "scipy_cblas_{}64_", "cblas_{}64_"  # of builds with 64-bit sizes

count_of = lru_cache(_COUNTS_KEPT)(ctypes.c_int64)  # which nothing writes: calls share them


class ForeignCall(NumberedCall):
    """A call of a C function on ``ctypes`` objects, of which addresses and int64 are its numbers."""

    __slots__ = ()

    @property
    def form(self) -> Hashable:
        return self.func, *(a.value for a in self.args if type(a) not in _NUMBERS)

    @property
    def numbers(self) -> Sequence[int]:
        return [a.value or 0 for a in self.args if type(a) in _NUMBERS]

    def reading(self, words: np.ndarray) -> ForeignCall:
        places = iter(range(0, words.nbytes, words.itemsize))
        call = ForeignCall(
            self.func,
            *(
                type(a).from_buffer(words, next(places)) if type(a) in _NUMBERS else a
                for a in self.args
            ),
        )
        call.alive = words, self.alive
        return call


def place_of(array: np.ndarray) -> ctypes.c_void_p:
    """Return the address of an array, as an operand."""
    return ctypes.c_void_p(address(array))


def as_foreign(call: Callable[[], Any]) -> Callable[[], Any]:
    """Return a C function's call for a copy, a fill or a product by NumPy; any other call as it is."""
    if type(call) is not partial or call.keywords or not all(map(_plain, call.args)):
        return call
    operands, function = call.args, call.func
    if function is np.copyto:
        return _copy(*operands) or call
    if function is np.matmul:
        return _product(*operands) or call
    owner = getattr(function, "__self__", None)
    if type(owner) is np.ndarray and function.__name__ == "fill":
        return _fill(owner, *operands) or call
    return call


def _plain(operand: Any) -> bool:
    """Tell whether it is a number, or an array whose elements a C function may read."""
    return not isinstance(operand, np.ndarray) or (
        type(operand) is np.ndarray and operand.dtype.isnative and operand.flags.aligned
    )


def _copy(to: np.ndarray, source: Any) -> ForeignCall | None:
    """Return the call that moves an array's bytes; None: they lie in another order, or are converted."""
    if type(source) is not np.ndarray or (to.shape, to.dtype) != (source.shape, source.dtype):
        return None
    if not (to.flags.c_contiguous and source.flags.c_contiguous and to.flags.writeable):
        return None
    move = ForeignCall(_libc().memmove, place_of(to), place_of(source), count_of(to.nbytes))
    move.alive = to, source
    return move


def _fill(array: np.ndarray, value: Any) -> ForeignCall | None:
    """Return the call that sets each byte of an array; None: the value has bytes that differ."""
    flags = array.flags
    if not (flags.forc and flags.writeable) or array.dtype.hasobject:
        return None
    byte, *others = set(np.full((), value, array.dtype).tobytes())
    if others:
        return None
    fill = ForeignCall(_libc().memset, place_of(array), ctypes.c_int(byte), count_of(array.nbytes))
    fill.alive = array
    return fill


def _product(left: np.ndarray, right: np.ndarray, out: np.ndarray) -> ForeignCall | None:
    """Return the call of NumPy's own library for a product of matrices.

    None: there are stacks of them, or vectors, for which NumPy calls other functions, or rows of ``out`` have
    gaps between elements.
    """
    if not left.ndim == right.ndim == out.ndim == 2 or not left.dtype == right.dtype == out.dtype:
        return None
    (rows, between), columns = left.shape, right.shape[1]
    gemm = _gemm(out.dtype.name)
    left_at, right_at, at = _lines(left), _lines(right), _lines(out)
    if gemm is None or left_at is None or right_at is None or at is None or at[0] is _TRANSPOSED:
        return None
    if min(rows, between, columns) < 2 or any(np.may_share_memory(out, m) for m in (left, right)):
        return None
    # The product of a matrix and its transpose is another function
    if address(left) == address(right):
        return None
    function, real = gemm
    sizes = map(count_of, (rows, columns, between))
    product = ForeignCall(
        *(function, _BY_ROW, left_at[0], right_at[0], *sizes, real(1.0)),
        *(place_of(left), count_of(left_at[1]), place_of(right), count_of(right_at[1])),
        *(real(0.0), place_of(out), count_of(at[1])),
    )
    product.alive = left, right, out
    return product


def _lines(matrix: np.ndarray) -> tuple[ctypes.c_int, int] | None:
    """Return whether a matrix lies by row or by column, and how many elements lie from line to line."""
    (rows, columns), size, (far, near) = matrix.shape, matrix.itemsize, matrix.strides
    if near == size and far % size == 0 and far >= columns * size:
        return _AS_IT_LIES, far // size
    if far == size and near % size == 0 and near >= rows * size:
        return _TRANSPOSED, near // size
    return None


@cache
def _libc() -> Any:
    library = ctypes.CDLL(None)
    library.memmove.restype = library.memset.restype = None
    return library


@cache
def _gemm(dtype: str) -> tuple[Any, Any] | None:
    """Return the function that NumPy multiplies matrices by, and the type of its factors; None: not found."""
    name, real = _GEMM.get(dtype, ("", None))
    for library in openblas() if name else ():
        for symbol in _SYMBOLS:
            function = getattr(library, symbol.format(name), None)
            if function is not None:
                function.restype = None
                return function, real
    return None
