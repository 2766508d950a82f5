"""What this process can compute: which ops have a kernel on which back end."""

from __future__ import annotations

import logging
import platform
from collections.abc import Callable, Mapping, Sequence
from functools import cache
from importlib import metadata

import numpy as np

from ...graph import ops as _ops  # noqa: F401 - fills the table of declarations
from ...graph.ir.capabilities import BackEnd, Capabilities, Takes
from ...graph.ir.graph import Node
from ...graph.lowering.select import in_single
from ...graph.ops.collective import COLLECTIVES
from ...graph.ops.host_call import HOST_CALL
from ...graph.ops.registry import OPS
from ...graph.report.report import SLOWER
from ..codegen import native
from ..cuda.runtime import Runtime
from . import back_ends
from .onednn.library import bfloat16
from .onednn.library import version as onednn_version
from .registry import KERNELS, Kernel, has_kernel

_log = logging.getLogger("rowlock")


@cache
def capabilities(libraries: frozenset[str] | None = None) -> Capabilities:
    """Return which ops each back end can run, and on which conditions (None: on none).

    Collectives run on every array module. ``libraries`` are those that all replicas have (None: this process).
    """
    here = frozenset(installed()) if libraries is None else libraries
    names = [
        name
        for name in (*back_ends.ALL_LIBRARIES, *back_ends.VARIANTS)
        if back_ends.library_of(name) in here
    ]
    if here.isdisjoint(("onednn", "llvm", "cuda")):
        _log.warning(SLOWER)
    return {name: back_end(name, here) for name in (*back_ends.BACK_ENDS, *names)}


def back_end(name: str, here: frozenset[str]) -> BackEnd:
    """Describe an array module, or a library where the libraries ``here`` are."""
    any_order = frozenset(
        op for (op, library), kernel in KERNELS.items() if library == name and kernel.any_order
    )
    if name in back_ends.BACK_ENDS:
        ops = [op for op in OPS if has_kernel(op, name)]
        between = (HOST_CALL,) if name == "numpy" else ()
        takes = dict.fromkeys((*ops, *COLLECTIVES, *between))
        return BackEnd(name, takes, remedy=back_ends.REMEDIES[name], any_order=any_order)
    kernels = {
        op: kernel
        for (op, library), kernel in KERNELS.items()
        if library == name and here.issuperset(kernel.needs)
    }
    library = back_ends.library_of(name)
    rounds: dict[str, frozenset[str] | None] = (
        {back_ends.ROUNDS[library]: None} if library in back_ends.ROUNDS else {}
    )
    if name == "llvm" and "onednn" in here:
        rounds = {back_ends.ROUNDS["onednn"]: back_ends.PRODUCTS_BY_ONEDNN}
    exact = ""
    if name in (back_ends.EXACT_VARIANT, back_ends.WINOGRAD):
        rounds = {}
    elif back_ends.BFLOAT16_PRODUCTS in rounds and back_ends.BFLOAT16_PRODUCTS not in here:
        rounds, exact = {}, back_ends.EXACT
    return BackEnd(
        next(module for module, names in back_ends.LIBRARIES.items() if library in names),
        {op: _widened(op, kernel, "llvm" in here) for op, kernel in kernels.items()},
        {op: kernel.layout for op, kernel in kernels.items() if kernel.layout},
        rounds,
        exact=exact,
        factors={op: kernel.factors for op, kernel in kernels.items() if kernel.factors},
        any_order=any_order,
        variant=library != name,
        always_exact=name == back_ends.EXACT_VARIANT,
    )


def _widened(op: str, kernel: Kernel, looped: bool) -> Takes | None:
    """Take low-precision nodes like those of float32, in which they are computed.

    What only moves elements stays with the array module, which takes them as they are.
    """
    takes = _left(op, kernel.takes) if kernel.prefer_loops and looped else kernel.takes
    plain = KERNELS.get((op, "numpy"))
    if takes is None or kernel.low or (plain is not None and plain.low):
        return takes
    return lambda node: takes(in_single(node))


def _left(op: str, takes: Takes | None) -> Takes | None:
    """Take what a compiled loop does not."""
    loop = KERNELS.get((op, "llvm"))
    if loop is None:
        return takes

    def left(node: Node) -> bool:
        looped = loop.takes is None or loop.takes(node)
        return not looped and (takes is None or takes(node))

    return left


def installed(runtime: Runtime | None = None) -> dict[str, str]:
    """Return the versions of the libraries that this process can use, by name.

    ``runtime``: on this GPU, and on the host for what is placed there; XLA compiles for CPUs alone.
    """
    there = {} if runtime is None else runtime.versions()
    here = [name for name in _VERSIONS if runtime is None or name != "xla"]
    versions = {name: _VERSIONS[name]() for name in here} | there
    return {name: version for name, version in versions.items() if version}


@cache
def _xla_version() -> str:
    """Return the versions of what brings XLA, without importing it: that takes a second."""
    try:
        return f"jax {metadata.version('jax')}, jaxlib {metadata.version('jaxlib')}"
    except metadata.PackageNotFoundError:
        return ""


# Library -> a function that returns its version, "" if it is not here.
_VERSIONS: dict[str, Callable[[], str]] = {
    "onednn": onednn_version,
    back_ends.BFLOAT16_PRODUCTS: bfloat16,
    "llvm": native.version,
    "xla": _xla_version,
}


def versions(runtime: Runtime | None = None) -> dict[str, str]:
    """Return the versions, with processors, that the bits of results depend on: of libraries and of NumPy."""
    numpy = f"{np.__version__}, {platform.machine()} {native.cpu()}"
    return {"numpy": numpy, **installed(runtime)}


def common(reports: Sequence[Mapping[str, str]]) -> dict[str, str]:
    """Return what all processes have in one version, so that they compute the same bits: versions by name."""
    shared = set.intersection(*(set(report.items()) for report in reports))
    return {name: version for name, version in reports[0].items() if (name, version) in shared}
