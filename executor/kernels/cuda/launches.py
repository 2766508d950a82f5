"""Kernels that call one function of ``source/``: their parameters, each with what is given for it."""

from __future__ import annotations

from collections.abc import Sequence
from functools import cache
from typing import Any, NamedTuple

from ....graph.ops.operands import Array
from ...codegen.cuda_source import c_type
from ...cuda.kernel import CudaKernel
from ...cuda.runtime import Dims, Step
from ...device.device import Device

BLOCK = 256
Argument = tuple[str, Any]  # a parameter as in C, and what is given for it


def names(arguments: Sequence[Argument]) -> str:
    """Return the names of parameters, as a call passes them on."""
    return ", ".join(text.rpartition(" ")[2] for text, _ in arguments)


class Maybe(NamedTuple):
    """An array that may be None, and one of its type."""

    array: Array | None
    like: Array


def read(**arrays: Array | Maybe) -> list[Argument]:
    """Return parameters that are read."""
    return [(f"const {text}", array) for text, array in written(**arrays)]


def written(**arrays: Array | Maybe) -> list[Argument]:
    """Return parameters that are written."""
    pairs = [(name, a if isinstance(a, Maybe) else Maybe(a, a)) for name, a in arrays.items()]
    return [(f"{c_type(a.like.dtype)}* {name}", a.array) for name, a in pairs]


def ints(**values: int) -> list[Argument]:
    """Return parameters of 32 bits."""
    return [(f"int {name}", value) for name, value in values.items()]


def longs(**values: int) -> list[Argument]:
    """Return parameters of 64 bits."""
    return [(f"long long {name}", value) for name, value in values.items()]


def numbers(like: Array, **values: float) -> list[Argument]:
    """Return parameters of an array's type."""
    return [(f"{c_type(like.dtype)} {name}", value) for name, value in values.items()]


@cache
def simple(
    name: str, parameters: tuple[str, ...], body: str, includes: tuple[str, ...], block: int = BLOCK
) -> CudaKernel:
    """Return a kernel whose parameters are written as in C: ``"const float* x"``."""
    pairs = tuple((kind, name) for kind, _, name in (p.rpartition(" ") for p in parameters))
    return CudaKernel(name, pairs, body, includes, block=block)


def start(
    dev: Device, kernel: CudaKernel, grid: Dims, arguments: Sequence[Any], block: int = BLOCK
) -> Step:
    """Return the launch of a kernel on a grid of blocks."""
    return dev.launch(kernel, grid, (block, 1, 1), arguments)


def run(
    dev: Device,
    function: str,
    body: str,
    arguments: Sequence[Argument],
    grid: Dims,
    includes: tuple[str, ...],
    block: int = BLOCK,
) -> Step:
    """Return the launch of a kernel that is named after the function which its text calls."""
    parameters = tuple(text for text, _ in arguments)
    kernel = simple(function.removeprefix("block_"), parameters, body, includes, block)
    return start(dev, kernel, grid, tuple(value for _, value in arguments), block)


def call(
    dev: Device,
    function: str,
    kinds: Sequence[str],
    arguments: Sequence[Argument],
    blocks: int,
    includes: tuple[str, ...],
    block: int = BLOCK,
) -> Step:
    """Return the launch of a function of template arguments and parameters on at least one block."""
    body = f"{function}<{', '.join(kinds)}>({names(arguments)});"
    return run(dev, function, body, arguments, (max(blocks, 1), 1, 1), includes, block)
