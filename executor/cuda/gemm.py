"""Products of matrices as data, the protocol of a library that computes them, and their arithmetic by NumPy.

A :class:`Gemm` describes a product without the addresses of its operands. All matrices are row-major: a row's
elements lie side by side, and the next row begins ``ld`` elements further on. Legend: M rows of the result,
N columns, K inner size; a holds [M, K], b [K, N] (or their transposes), d [M, N].
"""

from __future__ import annotations

import math
from abc import ABC, abstractmethod
from dataclasses import dataclass
from typing import Any

import numpy as np

from .step import Step

# Epilogues of alpha * a @ b + beta * d, before it is rounded to d's type and written (in this order):
#   bias          + a number for each column
#   relu, gelu    the activation; gelu is the form with tanh
#   _aux          stores the activation's operand: gelu numbers of d's type, relu a bit (1: above zero)
#   drelu, dgelu  * the activation's slope at the operand in _aux
#   _bgrad        sums of the result's columns are written to ``bias``
#   bgrad_a       sums of a [M, K] over K are written to ``bias`` (M numbers); the product is as without
#   bgrad_b       sums of b [K, N] over K (N numbers)
EPILOGUES = (
    "none",
    "bias",
    "relu",
    "relu_bias",
    "relu_aux",
    "relu_aux_bias",
    "gelu",
    "gelu_bias",
    "gelu_aux",
    "gelu_aux_bias",
    "drelu",
    "drelu_bgrad",
    "dgelu",
    "dgelu_bgrad",
    "bgrad_a",
    "bgrad_b",
)
_LOW = ("float16", "bfloat16")


@dataclass(frozen=True, kw_only=True)
class Gemm:
    """d = epilogue(alpha * a @ b + beta * d), for ``batch`` stacks of matrices.

    Types are NumPy's names. ``lda`` and its like count elements from row to row in memory, ``stride_a`` from
    matrix to matrix (0: one matrix for the whole batch). ``compute`` is the precision of the arithmetic:
    "float32", "tf32" (float32 factors are rounded to 10 bits behind the point, sums are float32) or "float64".
    ``ld_aux`` counts elements of aux, or bits, from row to row. ``beta`` is 0 or 1.
    """

    m: int
    n: int
    k: int
    a_type: str
    b_type: str
    d_type: str
    lda: int
    ldb: int
    ldd: int
    transpose_a: bool = False
    transpose_b: bool = False
    batch: int = 1
    stride_a: int = 0
    stride_b: int = 0
    stride_d: int = 0
    compute: str = "float32"
    alpha: float = 1.0
    beta: float = 0.0
    epilogue: str = "none"
    ld_aux: int = 0

    def __str__(self) -> str:
        sides = [
            f"{kind} [{rows}, {columns}]{' transposed' if turned else ''}"
            for kind, rows, columns, turned in (
                (self.a_type, self.m, self.k, self.transpose_a),
                (self.b_type, self.k, self.n, self.transpose_b),
            )
        ]
        return (
            f"product of {' and '.join(sides)} to {self.d_type} ({self.batch} in a batch, computed in "
            f"{self.compute}, beta {self.beta:g}, epilogue {self.epilogue}, "
            f"ld {self.lda}, {self.ldb}, {self.ldd})"
        )

    @property
    def adds_bias(self) -> bool:
        """Whether a bias row is read."""
        return self.epilogue.endswith("bias")

    @property
    def sums(self) -> int:
        """How many sums are written to ``bias``."""
        if self.epilogue == "bgrad_a":
            return self.m
        return self.n if "bgrad" in self.epilogue else 0

    @property
    def has_aux(self) -> bool:
        """Whether the epilogue writes or reads aux."""
        return "aux" in self.epilogue or self.epilogue.startswith("d")


@dataclass(frozen=True)
class Operands:
    """Arrays in device memory; the (first) matrix of each begins at its first element.

    ``bias`` is read, or takes sums; the epilogue writes or reads ``aux``.
    """

    a: Any
    b: Any
    d: Any
    bias: Any = None
    aux: Any = None


class Blas(ABC):
    """Multiplies matrices on a GPU. ``workspace``: bytes of scratch memory for every product."""

    workspace: int

    @abstractmethod
    def takes(self, gemm: Gemm, operands: Operands) -> bool:
        """Tell whether it can compute a product with this epilogue, from and to these addresses."""

    @abstractmethod
    def bind(self, gemm: Gemm, operands: Operands, workspace: Any) -> Step:
        """Return the call that puts a product on the compute stream; a graph can hold it.

        Raises:
            ExecutionError: the library refuses; the message names the product.
        """


def epilogue_exists(gemm: Gemm) -> bool:
    """Tell whether cuBLASLt documents an epilogue for these types, sizes and strides."""
    if gemm.epilogue == "none":
        return True
    if gemm.compute == "float64" or gemm.batch > 1:
        return False
    if not gemm.has_aux:
        return True
    bits = "relu" in gemm.epilogue
    return gemm.d_type in _LOW and gemm.ld_aux % (128 if bits else 8) == 0


class ReferenceBlas(Blas):
    """The described arithmetic by NumPy, on host memory."""

    workspace = 0

    def takes(self, gemm: Gemm, operands: Operands) -> bool:
        return epilogue_exists(gemm)

    def bind(self, gemm: Gemm, operands: Operands, workspace: Any) -> Step:
        return ReferenceProduct(gemm, operands)


class ReferenceProduct:
    """One product; calling it computes it."""

    captured = True

    def __init__(self, gemm: Gemm, operands: Operands) -> None:
        assert gemm.epilogue in EPILOGUES, gemm
        self.gemm, self.operands = gemm, operands
        g, o = gemm, operands
        stored_a = (g.k, g.m) if g.transpose_a else (g.m, g.k)
        stored_b = (g.n, g.k) if g.transpose_b else (g.k, g.n)
        a = _stack(o.a, g.a_type, stored_a, g.lda, g.batch, g.stride_a)
        b = _stack(o.b, g.b_type, stored_b, g.ldb, g.batch, g.stride_b)
        self._a = a.swapaxes(1, 2) if g.transpose_a else a
        self._b = b.swapaxes(1, 2) if g.transpose_b else b
        self._d = _stack(o.d, g.d_type, (g.m, g.n), g.ldd, g.batch, g.stride_d)
        self._wide = np.float64 if g.compute == "float64" else np.float32
        self._aux = self._aux_view() if g.has_aux else None

    def _aux_view(self) -> np.ndarray:
        g = self.gemm
        if "relu" in g.epilogue:
            rows = (g.m, -(-g.n // 8))
            return _stack(self.operands.aux, "uint8", rows, g.ld_aux // 8, 1, 0)[0]
        return _stack(self.operands.aux, g.d_type, (g.m, g.n), g.ld_aux, 1, 0)[0]

    def __call__(self) -> None:
        g = self.gemm
        a, b = (self._factor(x) for x in (self._a, self._b))
        with np.errstate(all="ignore"):
            product = np.matmul(a, b)
            if g.alpha != 1.0:
                product *= self._wide(g.alpha)
            if g.beta:
                product += self._d.astype(self._wide)
            if g.epilogue != "none":
                product = self._with_epilogue(product[0], a[0], b[0])[None]
            self._d[...] = product.astype(self._d.dtype)

    def _factor(self, array: np.ndarray) -> np.ndarray:
        factor = array.astype(self._wide)
        return in_tf32(factor) if self.gemm.compute == "tf32" else factor

    def _with_epilogue(self, product: np.ndarray, a: np.ndarray, b: np.ndarray) -> np.ndarray:
        name, bias = self.gemm.epilogue, self.operands.bias
        if name == "bgrad_a":
            bias[...] = a.sum(1).astype(bias.dtype)
        elif name == "bgrad_b":
            bias[...] = b.sum(0).astype(bias.dtype)
        elif self.gemm.adds_bias:
            product = product + bias.astype(self._wide)
        if name.startswith("d"):
            product = product * self._slope()
            if self.gemm.sums:
                bias[...] = product.sum(0).astype(bias.dtype)
        elif name.startswith(("relu", "gelu")):
            self._keep(product)
            product = (
                np.maximum(product, self._wide(0)) if name.startswith("relu") else gelu(product)
            )
        return product

    def _keep(self, product: np.ndarray) -> None:
        if self._aux is None:
            return
        if self._aux.dtype == np.uint8:
            self._aux[...] = np.packbits(product > 0, axis=1, bitorder="little")
        else:
            self._aux[...] = product.astype(self._aux.dtype)

    def _slope(self) -> np.ndarray:
        assert self._aux is not None
        if self._aux.dtype == np.uint8:
            bits = np.unpackbits(self._aux, axis=1, count=self.gemm.n, bitorder="little")
            return bits.astype(self._wide)
        return gelu_slope(self._aux.astype(self._wide))


def _stack(
    array: Any, kind: str, rows: tuple[int, int], ld: int, batch: int, stride: int
) -> np.ndarray:
    """Return [batch, rows, columns] at an array's address, which must lie inside the array's memory."""
    assert array.dtype.name == kind, f"an operand is {array.dtype.name}, described as {kind}"
    size = array.dtype.itemsize
    steps = (stride * size, ld * size, size)
    reach = sum((n - 1) * s for n, s in zip((batch, *rows), steps, strict=True))
    extent = sum((n - 1) * s for n, s in zip(array.shape, array.strides, strict=True))
    assert 0 <= reach <= extent, f"a product would reach {reach} bytes into {extent}"
    return np.lib.stride_tricks.as_strided(array, (batch, *rows), steps)


def in_tf32(array: np.ndarray) -> np.ndarray:
    """Return float32 numbers rounded to 10 bits behind the point, to the nearest (ties: even)."""
    bits = np.ascontiguousarray(array).view(np.uint32)
    rounded = (bits + np.uint32(0xFFF) + ((bits >> np.uint32(13)) & np.uint32(1))) & np.uint32(
        0xFFFFE000
    )
    return np.where(np.isfinite(array), rounded.view(np.float32), array)


_ROOT = math.sqrt(2.0 / math.pi)
_CUBE = 0.044715


def _inner(x: np.ndarray) -> np.ndarray:
    kind = x.dtype.type
    return np.tanh(kind(_ROOT) * (x + kind(_CUBE) * x * x * x))


def gelu(x: np.ndarray) -> np.ndarray:
    """Return GELU with tanh, in x's type."""
    kind = x.dtype.type
    return kind(0.5) * x * (kind(1) + _inner(x))


def gelu_slope(x: np.ndarray) -> np.ndarray:
    """Return its derivative."""
    kind = x.dtype.type
    t = _inner(x)
    slope = kind(_ROOT) * (kind(1) + kind(3 * _CUBE) * x * x)
    return kind(0.5) * (kind(1) + t) + kind(0.5) * x * (kind(1) - t * t) * slope
