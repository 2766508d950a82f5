"""Products by cuBLASLt: CuPy has no binding of it, and refuses cuBLAS while a graph is captured.

What computes a product is chosen once, before any graph is captured: the library's candidates are timed on
this GPU, and the fastest is kept on disk. All of them give the same bits each time.
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
from .gemm import Gemm, Operands
from .libraries import library
from .runtime import Runtime, Step

__all__ = ["CublasLt", "version"]
_CANDIDATES = 8
_RUNS = 5  # timed together, of each candidate
_HALF = 0x3C  # a byte that makes small numbers of every type of float
_NOT_SUPPORTED = 15


@dataclass(frozen=True)
class Choice:
    """The algorithm for a product, and the bytes of workspace that it uses."""

    algorithm: bytes
    workspace: int


class CublasLt:
    """Multiplies on one GPU (see :class:`~.gemm.Blas`)."""

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
        made = pointer()
        status = self.blas.cublasLtCreate(byref(made))
        check(self.runtime.properties.name, status, "cublasLtCreate")
        weakref.finalize(self, self.blas.cublasLtDestroy, made).atexit = False
        return made

    def takes(self, gemm: Gemm, operands: Operands) -> bool:
        """See :class:`~.gemm.Blas`."""
        if gemm.epilogue != "none" and (gemm.compute == "float64" or gemm.batch > 1):
            return False
        return self._choice(self._description(gemm, operands)) is not None

    def bind(self, gemm: Gemm, operands: Operands, workspace: Any) -> Step:
        """See :class:`~.gemm.Blas`."""
        found = self._description(gemm, operands)
        choice = self._choice(found)
        if choice is None:
            status, _ = self.candidates(found)
            check(gemm, status or _NOT_SUPPORTED, "cublasLtMatmulAlgoGetHeuristic")
        assert choice is not None
        return CublasLtProduct(self, found, choice, operands, workspace)

    def _description(self, gemm: Gemm, operands: Operands) -> Description:
        arrays = {name: getattr(operands, name) for name in ("a", "b", "d", "bias", "aux")}
        address = self.runtime.address
        return Description(gemm, {n: address(x) for n, x in arrays.items() if x is not None})

    def _choice(self, found: Description) -> Choice | None:
        """Return the algorithm that was fastest for such a product, now or before; None without any."""
        aligned = sorted((name, alignment(at)) for name, at in found.addresses.items())
        told = (
            f"{version()} {self.runtime.properties.name} {self.workspace} {found.gemm!r} {aligned}"
        )
        if told not in self._choices:
            kept = _KeptChoice(told)
            choice = kept.read()
            if choice is not None and not self._works(found, choice):
                kept.drop()
                choice = None
            if choice is None:
                choice = self._fastest(found)
                choice = choice and kept.write(choice)
            self._choices[told] = choice
        return self._choices[told]

    def _works(self, found: Description, choice: Choice) -> bool:
        algorithm, result = Algorithm.from_buffer_copy(choice.algorithm), Found()
        ends = (found.operation, found.b, found.a, found.d, found.d)
        check = self.blas.cublasLtMatmulAlgoCheck
        failed = check(self.handle, *ends, byref(algorithm), byref(result))
        return not failed and result.workspace <= self.workspace

    def candidates(self, found: Description) -> tuple[int, list[Choice]]:
        """Return the library's status, and what it would try, the most promising first."""
        results, count = (Found * _CANDIDATES)(), c_int()
        ends = (found.operation, found.b, found.a, found.d, found.d)
        status = self.blas.cublasLtMatmulAlgoGetHeuristic(
            self.handle,
            *ends,
            found.preference(self.workspace),
            c_int(_CANDIDATES),
            results,
            byref(count),
        )
        usable = (r for r in results[: count.value] if r.state == 0)
        tried = [] if status else [Choice(bytes(r.algorithm), r.workspace) for r in usable]
        return status, tried

    def _fastest(self, found: Description) -> Choice | None:
        _, tried = self.candidates(found)
        if not tried:
            return None
        try:
            bench = _Bench(self, found.gemm)
        except (
            MemoryError
        ):  # no room for operands to try them on; the library's own order has to do
            return None if _is_relu(found.gemm) else tried[0]
        times = {choice: bench.time(choice) for choice in tried}
        fit = (c for c in tried if times[c] < math.inf and bench.keeps_nan(c))
        return min(fit, key=times.__getitem__, default=None)


class CublasLtProduct:
    """One product; calling it puts it on the compute stream."""

    captured = True

    def __init__(
        self, blas: CublasLt, found: Description, choice: Choice, operands: Operands, workspace: Any
    ) -> None:
        self.gemm, self.operands = found.gemm, operands
        self._held = blas, found, workspace
        self._algorithm = Algorithm.from_buffer_copy(choice.algorithm)
        number = c_double if found.gemm.compute == "float64" else c_float
        self._scales = number(found.gemm.alpha), number(found.gemm.beta)
        alpha, beta = (byref(scale) for scale in self._scales)
        a, b, d = (pointer(found.addresses[name]) for name in "abd")
        self._call = blas.blas.cublasLtMatmul
        self._arguments = (
            *(blas.handle, found.operation, alpha, b, found.b, a, found.a, beta),
            *(d, found.d, d, found.d, byref(self._algorithm)),
            *(pointer(blas.runtime.address(workspace)), c_size_t(choice.workspace)),
            pointer(blas.runtime.compute.ptr),
        )

    def __call__(self) -> None:
        status = self._call(*self._arguments)
        if status:
            check(self.gemm, status, "cublasLtMatmul")


class _Bench:
    """Memory like a product's, on which algorithms are tried: what the operands hold is not touched."""

    def __init__(self, blas: CublasLt, gemm: Gemm) -> None:
        self._blas, self._runtime = blas, blas.runtime
        sizes = extents(gemm)
        self._arrays = {name: self._runtime.empty(nbytes) for name, nbytes in sizes.items()}
        self._workspace = self._runtime.empty(blas.workspace)
        addresses = {name: self._runtime.address(a) for name, a in self._arrays.items()}
        self._found = Description(gemm, addresses)
        self._operands = Operands(*(self._arrays.get(n) for n in ("a", "b", "d", "bias", "aux")))
        for array in self._arrays.values():
            array.fill(_HALF)

    def _product(self, choice: Choice) -> CublasLtProduct:
        return CublasLtProduct(self._blas, self._found, choice, self._operands, self._workspace)

    def time(self, choice: Choice) -> float:
        """Return milliseconds of one run, the first apart; infinitely many if it cannot run."""
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
        """Tell whether what is not a number comes out so: a relu must not make zero of it."""
        if not _is_relu(self._found.gemm):
            return True
        d = self._arrays["d"]
        self._arrays["a"].fill(0xFF)  # not a number, in every type of float
        d.fill(0)
        try:
            self._product(choice)()
        except ExecutionError:
            return False
        first = self._runtime.xp.asnumpy(d[: size_of(self._found.gemm.d_type)])
        return bool((first & 0x7F).any())


def _is_relu(gemm: Gemm) -> bool:
    return gemm.epilogue.startswith("relu")


class _KeptChoice:
    """A choice on disk. The first that is written stays, so that processes side by side agree."""

    def __init__(self, told: str) -> None:
        self._name = f"{hashlib.blake2b(told.encode(), digest_size=16).hexdigest()}.json"

    def read(self) -> Choice | None:
        """Return what is kept, if there is something."""
        data = disk_cache().read(self._name)
        return None if data is None else _choice_of(data)

    def drop(self) -> None:
        """Keep nothing."""
        disk_cache().drop(self._name)

    def write(self, choice: Choice) -> Choice:
        """Keep a choice, and return the one that is kept now."""
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
