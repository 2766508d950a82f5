"""Products by cuBLASLt: CuPy has no binding of it, and refuses cuBLAS while a graph is captured.

The algorithm of a product is chosen once, before any graph is captured: the library's candidates are timed on
this GPU, and the fastest is stored on disk. All of them give the same bits each time.
"""

from __future__ import annotations

import ctypes
import hashlib
import json
import math
import weakref
from ctypes import byref, c_double, c_float, c_int, c_size_t
from ctypes import c_void_p as pointer
from dataclasses import dataclass
from functools import cached_property
from typing import Any

from ...strategies.errors import ExecutionError
from ..host.disk_cache import disk_cache
from .cublaslt_terms import (
    Algorithm,
    Description,
    Found,
    alignment,
    check,
    extents,
    size_of,
    version,
)
from .gemm import Blas, Gemm, Operands
from .libraries import library
from .runtime import Runtime, Step

__all__ = ["CublasLt", "version"]
_CANDIDATES = 8
_RUNS = 5  # timed together, of each candidate
_HALF = 0x3C  # repeated, this byte gives small numbers of every type of float
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
            stored = _StoredChoice(key)
            choice = stored.read()
            if choice is not None and not self._works(description, choice):
                stored.drop()
                choice = None
            if choice is None:
                choice = self._fastest(description)
                choice = choice and stored.write(choice)
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
        _, choices = self.candidates(description)
        if not choices:
            return None
        try:
            bench = _Bench(self, description.gemm)
        except MemoryError:  # no room for operands to time them on: take the library's own order
            return None if _is_relu(description.gemm) else choices[0]
        times = {choice: bench.time(choice) for choice in choices}
        fit = (c for c in choices if times[c] < math.inf and bench.keeps_nan(c))
        return min(fit, key=times.__getitem__, default=None)


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


class _Bench:
    """Memory like a product's, on which algorithms are timed, so that the operands stay untouched."""

    def __init__(self, blas: CublasLt, gemm: Gemm) -> None:
        self._blas, self._runtime = blas, blas.runtime
        sizes = extents(gemm)
        self._arrays = {name: self._runtime.empty(nbytes) for name, nbytes in sizes.items()}
        self._workspace = self._runtime.empty(blas.workspace)
        addresses = {name: self._runtime.address(a) for name, a in self._arrays.items()}
        self._description_tried = Description(gemm, addresses)
        self._operands = Operands(*(self._arrays.get(n) for n in ("a", "b", "d", "bias", "aux")))
        for array in self._arrays.values():
            array.fill(_HALF)

    def _product(self, choice: Choice) -> CublasLtProduct:
        return CublasLtProduct(
            self._blas, self._description_tried, choice, self._operands, self._workspace
        )

    def time(self, choice: Choice) -> float:
        """Return milliseconds of a run after the first one; infinity if the algorithm cannot run."""
        cuda, product = self._runtime.xp.cuda, self._product(choice)
        begin, end = cuda.Event(), cuda.Event()
        try:
            product()
            begin.record(self._runtime.compute)
            for _ in range(_RUNS):
                product()
            end.record(self._runtime.compute)
        except ExecutionError:
            return math.inf
        end.synchronize()
        return float(cuda.get_elapsed_time(begin, end)) / _RUNS

    def keeps_nan(self, choice: Choice) -> bool:
        """Tell whether NaN stays NaN: a relu must not turn it into zero."""
        if not _is_relu(self._description_tried.gemm):
            return True
        d = self._arrays["d"]
        self._arrays["a"].fill(0xFF)  # not a number, in every type of float
        d.fill(0)
        try:
            self._product(choice)()
        except ExecutionError:
            return False
        first = self._runtime.xp.asnumpy(d[: size_of(self._description_tried.gemm.d_type)])
        return bool((first & 0x7F).any())


def _is_relu(gemm: Gemm) -> bool:
    return gemm.epilogue.startswith("relu")


class _StoredChoice:
    """A choice on disk. The first that is written stays, so that processes side by side agree."""

    def __init__(self, key: str) -> None:
        self._name = f"{hashlib.blake2b(key.encode(), digest_size=16).hexdigest()}.json"

    def read(self) -> Choice | None:
        """Return the stored choice, None without one."""
        data = disk_cache().read(self._name)
        return None if data is None else _choice_of(data)

    def drop(self) -> None:
        """Keep nothing."""
        disk_cache().drop(self._name)

    def write(self, choice: Choice) -> Choice:
        """Store a choice, and return the one that is stored now."""
        terms = {"algorithm": choice.algorithm.hex(), "workspace": choice.workspace}
        data = disk_cache().write(self._name, json.dumps(terms).encode(), first=True)
        return _choice_of(data) or choice


def _choice_of(data: bytes) -> Choice | None:
    """Return the choice that bytes describe; None if they are none, or those of another version."""
    try:
        terms = json.loads(data)
        choice = Choice(bytes.fromhex(terms["algorithm"]), int(terms["workspace"]))
    except (ValueError, KeyError, TypeError):
        return None
    return choice if len(choice.algorithm) == ctypes.sizeof(Algorithm) else None
