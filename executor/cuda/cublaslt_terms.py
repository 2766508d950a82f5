"""A product in cuBLASLt's own terms, through ctypes. No GPU is needed to make these.

cuBLASLt's matrices are column-major; a row-major matrix is the transpose of one. So it is given the transposed
product: its A is our b, its B our a, its D our d; a bias for each of our columns is one for each of its rows.
"""

from __future__ import annotations

import ctypes
import weakref
from ctypes import byref, c_float, c_int, c_int32, c_int64, c_size_t, c_uint32, c_uint64
from ctypes import c_void_p as pointer
from functools import cache
from typing import Any

from ...strategies.errors import ExecutionError
from .gemm import Gemm
from .libraries import library

# Numbers of cublasLt.h and library_types.h.
_TYPES = {"float32": 0, "float64": 1, "float16": 2, "bfloat16": 14}
_COMPUTE = {"float32": 68, "float64": 70, "tf32": 77}
_EPILOGUES = {
    "none": 1,
    "relu": 2,
    "relu_aux": 2 | 128,
    "bias": 4,
    "relu_bias": 2 | 4,
    "relu_aux_bias": 2 | 4 | 128,
    "drelu": 8 | 128,
    "drelu_bgrad": 8 | 16 | 128,
    "gelu": 32,
    "gelu_aux": 32 | 128,
    "gelu_bias": 32 | 4,
    "gelu_aux_bias": 32 | 4 | 128,
    "dgelu": 64 | 128,
    "dgelu_bgrad": 64 | 16 | 128,
    "bgrad_a": 512,  # our a is its B
    "bgrad_b": 256,
}
_TRANSPOSE_A, _TRANSPOSE_B, _EPILOGUE, _BIAS, _AUX, _AUX_LD = 3, 4, 7, 8, 11, 12
_BATCH_COUNT, _BATCH_STRIDE = 5, 6
_WORKSPACE, _REDUCTIONS, _ALIGNMENTS = 1, 3, (5, 6, 7, 8)
# Parts of a sum over K are added in a second step, in their order in memory
_SUMS_IN_COMPUTE_TYPE = 2
_STATUS = {
    1: "not initialized",
    3: "allocation failed",
    7: "invalid value",
    8: "architecture mismatch",
    11: "mapping error",
    13: "execution failed",
    14: "internal error",
    15: "not supported",
    16: "license error",
}
# Bytes that a thread, or TMA, takes at once: more would tell apart what is computed alike
_MOST_ALIGNED = 16


@cache
def version() -> str:
    """Return cuBLASLt's version, "" if it is not installed."""
    blas = library("cublasLt")
    if blas is None:
        return ""
    blas.cublasLtGetVersion.restype = c_size_t
    number = blas.cublasLtGetVersion()
    major, minor = divmod(number, 10000)
    return f"{major}.{minor // 100}.{minor % 100}"


def check(product: object, status: int, call: str) -> None:
    """Raise if a call did not succeed.

    Raises:
        ExecutionError: it names the product, the call and the status.
    """
    if status:
        meaning = _STATUS.get(status, "unknown")
        raise ExecutionError(f"cuBLASLt refuses {product}: {call} returned {status} ({meaning}).")


class Algorithm(ctypes.Structure):
    """``cublasLtMatmulAlgo_t``: how a product is computed."""

    _fields_ = (("data", c_uint64 * 8),)


class Found(ctypes.Structure):
    """``cublasLtMatmulHeuristicResult_t``."""

    _fields_ = (
        ("algorithm", Algorithm),
        ("workspace", c_size_t),
        ("state", c_int),
        ("waves", c_float),
        ("reserved", c_int * 4),
    )


class Description:
    """A product at its addresses, in descriptors of the library. No GPU is needed to make one."""

    def __init__(self, gemm: Gemm, addresses: dict[str, int]) -> None:
        self.gemm, self.addresses = gemm, addresses
        blas = library("cublasLt")
        assert blas is not None
        self._blas = blas
        scale = _TYPES["float64" if gemm.compute == "float64" else "float32"]
        self.operation = self._create("MatmulDesc", c_int(_COMPUTE[gemm.compute]), c_int(scale))
        self._set("MatmulDesc", self.operation, _TRANSPOSE_A, c_int32(gemm.transpose_b))
        self._set("MatmulDesc", self.operation, _TRANSPOSE_B, c_int32(gemm.transpose_a))
        self._finish()
        g = gemm
        stored_a = (g.k, g.m) if g.transpose_a else (g.m, g.k)
        stored_b = (g.n, g.k) if g.transpose_b else (g.k, g.n)
        self.a = self._layout(g.a_type, stored_a, g.lda, g.stride_a)
        self.b = self._layout(g.b_type, stored_b, g.ldb, g.stride_b)
        self.d = self._layout(g.d_type, (g.m, g.n), g.ldd, g.stride_d)

    def _finish(self) -> None:
        g = self.gemm
        self._set("MatmulDesc", self.operation, _EPILOGUE, c_uint32(_EPILOGUES[g.epilogue]))
        if g.adds_bias or g.sums:
            self._set("MatmulDesc", self.operation, _BIAS, pointer(self.addresses["bias"]))
        if g.has_aux:
            self._set("MatmulDesc", self.operation, _AUX, pointer(self.addresses["aux"]))
            self._set("MatmulDesc", self.operation, _AUX_LD, c_int64(g.ld_aux))

    def _layout(self, kind: str, extent: tuple[int, int], ld: int, stride: int) -> pointer:
        rows, columns = extent
        layout = self._create(
            "MatrixLayout", c_int(_TYPES[kind]), c_uint64(columns), c_uint64(rows), c_int64(ld)
        )
        if self.gemm.batch > 1:
            self._set("MatrixLayout", layout, _BATCH_COUNT, c_int32(self.gemm.batch))
            self._set("MatrixLayout", layout, _BATCH_STRIDE, c_int64(stride))
        return layout

    def preference(self, workspace: int) -> pointer:
        """Return the limits of algorithms: so much workspace, and operands aligned as these are."""
        handle = self._create("MatmulPreference")
        self._set("MatmulPreference", handle, _WORKSPACE, c_size_t(workspace))
        self._set("MatmulPreference", handle, _REDUCTIONS, c_uint32(_SUMS_IN_COMPUTE_TYPE))
        for attribute, name in zip(_ALIGNMENTS, ("b", "a", "d", "d"), strict=True):
            bytes_aligned = c_uint32(alignment(self.addresses[name]))
            self._set("MatmulPreference", handle, attribute, bytes_aligned)
        return handle

    def _create(self, kind: str, *arguments: Any) -> pointer:
        handle = pointer()
        status = self._blas[f"cublasLt{kind}Create"](byref(handle), *arguments)
        check(self.gemm, status, f"cublasLt{kind}Create")
        weakref.finalize(self, self._blas[f"cublasLt{kind}Destroy"], handle).atexit = False
        return handle

    def _set(self, kind: str, of: pointer, attribute: int, value: Any) -> None:
        size = c_size_t(ctypes.sizeof(value))
        status = self._blas[f"cublasLt{kind}SetAttribute"](of, c_int(attribute), byref(value), size)
        check(self.gemm, status, f"cublasLt{kind}SetAttribute {attribute}")


def alignment(address: int) -> int:
    """Return the largest power of two, up to what algorithms make use of, of which an address is a multiple."""
    return min(address & -address or _MOST_ALIGNED, _MOST_ALIGNED)


def size_of(kind: str) -> int:
    return {"float64": 8, "float32": 4}.get(kind, 2)


def extents(gemm: Gemm) -> dict[str, int]:
    """Return how many bytes a product's operands span, by name."""
    g = gemm
    stored_a = (g.k, g.m) if g.transpose_a else (g.m, g.k)
    stored_b = (g.n, g.k) if g.transpose_b else (g.k, g.n)

    def span(kind: str, rows: int, columns: int, ld: int, stride: int) -> int:
        return ((g.batch - 1) * stride + (rows - 1) * ld + columns) * size_of(kind)

    spans = {
        "a": span(g.a_type, *stored_a, g.lda, g.stride_a),
        "b": span(g.b_type, *stored_b, g.ldb, g.stride_b),
        "d": span(g.d_type, g.m, g.n, g.ldd, g.stride_d),
    }
    if g.adds_bias or g.sums:
        spans["bias"] = (g.sums or g.n) * size_of(g.d_type)
    if g.has_aux:
        spans["aux"] = g.m * g.ld_aux * size_of(g.d_type)  # of bits: more than is needed
    return spans
