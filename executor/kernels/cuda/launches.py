"""Kernels that call one function of ``source/``: their parameters, each with what is given for it."""

from __future__ import annotations

from collections.abc import Sequence
from functools import cache
from typing import Any

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


def _type(array: Array | None, like: Array | None) -> str:
    known = array if like is None else like
    assert known is not None, "an array that may be None needs one of its type"
    return c_type(known.dtype)


def read(name: str, array: Array | None, like: Array | None = None) -> Argument:
    """Return a parameter that is read; ``like``: an array of its type, where it may be None."""
    return f"const {_type(array, like)}* {name}", array


def written(name: str, array: Array | None, like: Array | None = None) -> Argument:
    """Return a parameter that is written."""
    return f"{_type(array, like)}* {name}", array


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
