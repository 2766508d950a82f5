"""Ops with a formula on libraries that make loops: their kernels, where none is written by hand."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from functools import partial
from typing import Any

import numpy as np

from ...graph.ir.graph import Node
from ...graph.ops import expr as e
from ...graph.ops.operands import Array, Operands
from ...graph.ops.registry import OPS, Op
from ...graph.ops.residual_norm import ADD_NORM, NORM_GRAD_ADD
from ...strategies.types import LOW, VarType
from ..codegen.array_calls import bind_calls
from ..codegen.array_program import Means, Outputs
from ..device.device import Device
from .array.formula import formula_steps
from .array.manipulation import Copy, copied
from .cublaslt.product import product
from .cuda.by_index import Sums, inside, picked
from .cuda.copies import filled, moved
from .cuda.elementwise import CUDA
from .cuda.metric import best
from .cuda.reduction import reduced
from .cuda.sequences import offsets_of, row_of_largest, sequence_of
from .loops import by_index
from .loops.elementwise import LLVM
from .loops.norm import HOW
from .loops.reduction import extreme
from .loops.sequence import WRITTEN
from .loops.views import bind_copy
from .registry import KERNELS, Kernel, Step

_LOOPED = (np.float32, np.bool_)


def _loops_here(dev: Device, outputs: Outputs, arrays: Mapping[str, Any]) -> list[Step]:
    """Compile the terms that loops can compute; the array module computes the rest."""
    operands = (*arrays.values(), *(out for _, out in outputs))
    if all(a.dtype in _LOOPED for a in operands) and all(LLVM.known(root) for root, _ in outputs):
        return LLVM.bind(dev, outputs, arrays)
    return bind_calls(dev, outputs, arrays)


def _in_order(dev: Device, *arrays: Array) -> tuple[list[Step], list[Array]]:
    """Return arrays whose elements lie in their order, and the calls that copy those whose did not."""
    steps: list[Step] = []
    ordered: list[Array] = []
    for array in arrays:
        if not array.flags.c_contiguous:
            source, array = array, dev.scratch(array.shape, array.dtype)
            steps += CUDA.bind(dev, [(e.copy(e.argument("x")), array)], {"x": source})
        ordered.append(array)
    return steps, ordered


def _stacked(dev: Device, index: Array, stack: int, rows: int) -> tuple[list[Step], Array]:
    """Return row numbers in a stack of matrices that is seen as one."""
    if stack == 1:
        return [], index
    first = dev.keep((stack, 1), np.int64)
    first[...] = dev.xp.arange(stack).reshape(-1, 1) * rows
    numbers = dev.scratch((stack, index.size), np.int64)
    total = e.argument("first") + e.argument("index")
    return CUDA.bind(dev, [(total, numbers)], {"first": first, "index": index}), numbers.reshape(-1)


def _cuda_rows(dev: Device, source: Array, index: Array, out: Array) -> list[Step]:
    steps, (source, index) = _in_order(dev, source, index)
    more, index = _stacked(dev, index, *source.shape[:2])
    source, target = (a.reshape(-1, a.shape[2]) for a in (source, out))
    return [*steps, *more, *picked(dev, source, index, target)]


def _cuda_row_sums(dev: Device, index: Array, values: Array, out: Array) -> list[Step]:
    steps, (index, values) = _in_order(dev, index, values)
    more, index = _stacked(dev, index, *out.shape[:2])
    values, target = (a.reshape(-1, a.shape[2]) for a in (values, out))
    sums = Sums(dev, index, target.shape[0])
    return [*steps, *more, *sums.steps, *sums.into(target, values)]


def _cuda_row_of_largest(dev: Device, offsets: Array, x: Array, out: Array) -> list[Step]:
    steps, (offsets, x) = _in_order(dev, offsets, x)
    return [*steps, *row_of_largest(dev, offsets, x, out)]


def _cuda_offsets(dev: Device, lengths: Array, out: Array) -> list[Step]:
    steps, (lengths,) = _in_order(dev, lengths)
    return [*steps, *offsets_of(dev, lengths, out)]


def _cuda_sequence_of(dev: Device, op: str, what: str, offsets: Array, out: Array) -> list[Step]:
    steps, (offsets,) = _in_order(dev, offsets)
    return [*steps, *sequence_of(dev, op, what, offsets, out)]


def _cuda_matmul(dev: Device, x: Array, y: Array, out: Array) -> list[Step]:
    """Multiply by cuBLASLt, whose products a graph can hold, if it is there and takes the elements."""
    if not dev.cuda.versions().get("cublaslt") or out.dtype.kind != "f":
        return [partial(dev.xp.matmul, x, y, out)]
    return product(dev, x, y, out) if x.size else filled(dev, out, 0)


def _cuda_extreme(
    dev: Device, name: str, x: Array, axes: tuple[int, ...], out: Array
) -> list[Step]:
    return reduced(dev, name.capitalize(), x, out, axes)


def _cuda_first_largest(dev: Device, x: Array, axis: int, out: Array) -> list[Step]:
    steps, (x,) = _in_order(dev, x)
    return [*steps, *best(dev, x, out, axis, "false")]


def _copies(alike: Copy) -> Copy:
    """Return the copy between arrays of one type, or of two: an array call."""

    def copy(dev: Device, target: Array | None, source: Array) -> list[Step]:
        same = target is not None and target.dtype == source.dtype
        return (alike if same else copied)(dev, target, source)

    return copy


LLVM_MEANS = Means(
    _loops_here,
    by_index.rows,
    by_index.row_sums,
    by_index.row_of_largest,
    copy=_copies(bind_copy),
    extreme=lambda *how: [*extreme(*how)],
)
CUDA_MEANS = Means(
    CUDA.bind,
    _cuda_rows,
    _cuda_row_sums,
    _cuda_row_of_largest,
    copy=_copies(moved),
    inside=inside,
    offsets=_cuda_offsets,
    sequence_of=_cuda_sequence_of,
    matmul=_cuda_matmul,
    extreme=_cuda_extreme,
    first_largest=_cuda_first_largest,
)


# Sums are folded into norms wherever a library says that it takes these: oneDNN's norms alone are faster.
_FOLDED = (ADD_NORM, NORM_GRAD_ADD)
# Batches of new lengths bind these, which takes loops ten times as long as calls of NumPy that fit any lengths.
_OF_LENGTHS = (
    "lod_rank_table",
    "reorder_lod_tensor_by_rank",
    "reorder_lod_tensor_by_rank_grad",
    "shrink_rnn_memory_grad",
    "split_lod_tensor",
    "merge_lod_tensor",
)


def register() -> None:
    """Add kernels for ops with formulas."""
    for op in OPS.values():
        if op.formula is not None:
            if op.type not in (*_FOLDED, *_OF_LENGTHS):
                _add(op, "llvm", LLVM_MEANS, _in_single)
            _add(op, "cuda", CUDA_MEANS, CUDA.takes)


def _add(op: Op, back_end: str, means: Means, takes: Callable[[Node], bool]) -> None:
    if (op.type, back_end) in KERNELS:
        return
    written = WRITTEN.get(op.type) if back_end == "llvm" else None

    def formula_kernel(dev: Device, a: Operands) -> list[Step]:
        steps = None if written is None else written(dev, a)
        return formula_steps(dev, op, a, means) if steps is None else [*steps]

    own = HOW.get(op.type, {}) if back_end == "llvm" else {}
    KERNELS[op.type, back_end] = Kernel(formula_kernel, **{"takes": takes, **own})


def _in_single(node: Node) -> bool:
    """Tell whether a node's floats are in single precision: loops compute these."""
    types = {value.spec.dtype for value in (*node.reads(), *node.writes())}
    return VarType.FP32 in types and not types & {*LOW, VarType.FP64}
