"""Products by cuBLASLt: CuPy has no binding of it, and refuses cuBLAS while a graph is captured.

The algorithm of a product is chosen once, before any graph is captured: the library's candidates are timed on
this GPU, and the fastest is stored on disk. All of them give the same bits each time.
"""

from __future__ import annotations

import ctypes
import json
import weakref
from ctypes import byref, c_double, c_float, c_int, c_size_t
from ctypes import c_void_p as pointer
from dataclasses import dataclass
from functools import cached_property
from typing import Any

from ..host.disk_cache import disk_cache, entry
from .bench import Bench
from .cublaslt_terms import (
    Algorithm,
    Description,
    Found,
    alignment,
    check,
    extents,
    version,
)
from .gemm import Blas, Gemm, Operands
from .libraries import library
from .runtime import Runtime, Step

__all__ = ["CublasLt", "version"]
_CANDIDATES = 8
_NOT_SUPPORTED = 15


@dataclass(frozen=True)
class Choice:
    """The algorithm for a product, and the bytes of workspace that it uses."""

    algorithm: bytes
    workspace: int


class CublasLt(Blas):
    """Multiplies on one GPU."""

    def __init__(self, runtime: Runtime) -> None:
        blas = library("cublasLt")
        assert blas is not None
        self.runtime, self.blas = runtime, blas
        hopper = runtime.properties.capability >= (9, 0)
        self.workspace = (32 if hopper else 4) << 20
        self._choices: dict[str, Choice | None] = {}

    @cached_property
    def handle(self) -> pointer:
        """The library's handle on this GPU."""
        self.runtime.use()
        handle = pointer()
        status = self.blas.cublasLtCreate(byref(handle))
        check(self.runtime.properties.name, status, "cublasLtCreate")
        weakref.finalize(self, self.blas.cublasLtDestroy, handle).atexit = False
        return handle

    def takes(self, gemm: Gemm, operands: Operands) -> bool:
        if gemm.epilogue != "none" and (gemm.compute == "float64" or gemm.batch > 1):
            return False
        return self._choice(self._description(gemm, operands)) is not None

    def bind(self, gemm: Gemm, operands: Operands, workspace: Any) -> Step:
        description = self._description(gemm, operands)
        choice = self._choice(description)
        if choice is None:
            status, _ = self.candidates(description)
            check(gemm, status or _NOT_SUPPORTED, "cublasLtMatmulAlgoGetHeuristic")
        assert choice is not None
        return CublasLtProduct(self, description, choice, operands, workspace)

    def _description(self, gemm: Gemm, operands: Operands) -> Description:
        arrays = {name: getattr(operands, name) for name in ("a", "b", "d", "bias", "aux")}
        address = self.runtime.address
        return Description(gemm, {n: address(x) for n, x in arrays.items() if x is not None})

    def _choice(self, description: Description) -> Choice | None:
        """Return the fastest algorithm for such a product, stored or timed now; None without any."""
        aligned = sorted((name, alignment(at)) for name, at in description.addresses.items())
        key = f"{version()} {self.runtime.properties.name} {self.workspace} {description.gemm!r} {aligned}"
        if key not in self._choices:
            disk, name = disk_cache(), entry(key, ".json")
            data = disk.read(name)
            choice = _choice_of(data)
            if data is not None and not (choice and self._works(description, choice)):
                disk.drop(name)
                choice = None
            if choice is None and (choice := self._fastest(description)) is not None:
                terms = {"algorithm": choice.algorithm.hex(), "workspace": choice.workspace}
                stored = disk.write(name, json.dumps(terms).encode(), first=True)
                choice = _choice_of(stored) or choice  # another process may have been the first
            self._choices[key] = choice
        return self._choices[key]

    def _works(self, description: Description, choice: Choice) -> bool:
        algorithm, result = Algorithm.from_buffer_copy(choice.algorithm), Found()
        ends = (description.operation, description.b, description.a, description.d, description.d)
        check = self.blas.cublasLtMatmulAlgoCheck
        failed = check(self.handle, *ends, byref(algorithm), byref(result))
        return not failed and result.workspace <= self.workspace

    def candidates(self, description: Description) -> tuple[int, list[Choice]]:
        """Return the library's status, and its algorithms, the most promising first."""
        results, count = (Found * _CANDIDATES)(), c_int()
        ends = (description.operation, description.b, description.a, description.d, description.d)
        status = self.blas.cublasLtMatmulAlgoGetHeuristic(
            self.handle,
            *ends,
            description.preference(self.workspace),
            c_int(_CANDIDATES),
            results,
            byref(count),
        )
        usable = (r for r in results[: count.value] if r.state == 0)
        choices = [] if status else [Choice(bytes(r.algorithm), r.workspace) for r in usable]
        return status, choices

    def _fastest(self, description: Description) -> Choice | None:
        gemm, (_, choices) = description.gemm, self.candidates(description)
        if not choices:
            return None
        relu = gemm.epilogue.startswith("relu")
        try:
            bench = Bench(self.runtime, extents(gemm), self.workspace)
        except MemoryError:  # no room for operands to time them on: take the library's own order
            return None if relu else choices[0]
        like = Description(gemm, bench.addresses)
        operands = Operands(*map(bench.arrays.get, ("a", "b", "d", "bias", "aux")))
        calls = {c: CublasLtProduct(self, like, c, operands, bench.workspace) for c in choices}
        return bench.fastest(calls, ("a", "d") if relu else None)


class CublasLtProduct:
    """One product; calling it puts it on the compute stream."""

    captured = True

    def __init__(
        self,
        blas: CublasLt,
        description: Description,
        choice: Choice,
        operands: Operands,
        workspace: Any,
    ) -> None:
        self.gemm, self.operands = description.gemm, operands
        self._alive = blas, description, workspace
        self._algorithm = Algorithm.from_buffer_copy(choice.algorithm)
        number = c_double if description.gemm.compute == "float64" else c_float
        self._scales = number(description.gemm.alpha), number(description.gemm.beta)
        alpha, beta = (byref(scale) for scale in self._scales)
        a, b, d = (pointer(description.addresses[name]) for name in "abd")
        self._call = blas.blas.cublasLtMatmul
        self._arguments = (
            *(blas.handle, description.operation, alpha, b, description.b, a, description.a, beta),
            *(d, description.d, d, description.d, byref(self._algorithm)),
            *(pointer(blas.runtime.address(workspace)), c_size_t(choice.workspace)),
            pointer(blas.runtime.compute.ptr),
        )

    def __call__(self) -> None:
        status = self._call(*self._arguments)
        if status:
            check(self.gemm, status, "cublasLtMatmul")


def _choice_of(data: bytes | None) -> Choice | None:
    """Return the choice that bytes describe; None if they describe none of this version."""
    if data is None:
        return None
    try:
        terms = json.loads(data)
        choice = Choice(bytes.fromhex(terms["algorithm"]), int(terms["workspace"]))
    except (ValueError, KeyError, TypeError):
        return None
    return choice if len(choice.algorithm) == ctypes.sizeof(Algorithm) else None
