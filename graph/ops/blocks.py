"""Ops that hold a block of the program, those that stand around and in such blocks, and arrays of tensors.

They have no kernels: when a program is read into a graph, their blocks become ops like any others (see
``graph/ir/branches.py`` and ``graph/ir/recurrent.py``). Slots and attributes are Paddle's.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from functools import reduce
from typing import Any

from ...strategies.types import VarType
from .lod import no_sequences
from .operands import Input, Inputs, Operands, Output, Outputs, named
from .registry import BLOCK_OPS, Grad, Inference, Op, ShapeRule, Spec, Specs
from .rules import as_declared, normal_axis


def _like_x(results: int) -> ShapeRule:
    return lambda op: {op.op.output_slots[0].name: [op.spec("X")] * results}


def _selected(op: Inference) -> Mapping[str, Specs]:
    """Like the first of X: the result of the branch that is taken where the condition is false.

    A size that another of them is known not to have is unknown.
    """
    first, *others = op.specs("X")
    return {"Out": reduce(either, others, first)}


def either(one: Spec, other: Spec) -> Spec:
    """Return the spec of one of two results, of which a size is unknown that the other is known not to have."""
    if len(one.shape) != len(other.shape):
        return one
    sizes = zip(one.shape, other.shape, strict=True)
    return one._replace(shape=tuple(n if m in (n, -1) else -1 for n, m in sizes))


class ConditionalBlock(Operands):
    cond: Inputs
    input: Inputs | None
    out: Outputs | None
    scope: Output | None
    sub_block: Any = None
    is_scalar_condition: bool = False
    skip_eager_deletion_vars: Sequence[str] = []


class ConditionalBlockGrad(Operands):
    cond: Inputs
    input: Inputs | None
    out: Inputs | None
    d_out: Inputs | None
    scope: Input | None
    d_input: Outputs | None
    sub_block: Any = None
    is_scalar_condition: bool = False


class SelectInput(Operands):
    x: Inputs
    mask: Input
    out: Output


class SelectOutput(Operands):
    x: Input
    mask: Input
    out: Outputs


class RecurrentAttributes(Operands):
    has_states: bool = False
    ex_states: Sequence[str] = []
    states: Sequence[str] = []
    sub_block: Any = None
    reverse: bool = False
    is_train: bool = True
    skip_eager_deletion_vars: Sequence[str] = []


class Recurrent(RecurrentAttributes):
    inputs: Inputs | None = named("inputs")
    initial_states: Inputs | None = named("initial_states")
    parameters: Inputs | None = named("parameters")
    outputs: Outputs | None = named("outputs")
    step_scopes: Output | None = named("step_scopes")


class RecurrentGrad(RecurrentAttributes):
    inputs: Inputs | None = named("inputs")
    initial_states: Inputs | None = named("initial_states")
    parameters: Inputs | None = named("parameters")
    outputs: Inputs | None = named("outputs")
    step_scopes: Input | None = named("step_scopes")
    d_outputs: Inputs | None = named("outputs@GRAD")
    d_step_scopes: Input | None = named("step_scopes@GRAD")
    d_inputs: Outputs | None = named("inputs@GRAD")
    d_initial_states: Outputs | None = named("initial_states@GRAD")
    d_parameters: Outputs | None = named("parameters@GRAD")


class MemoryHelper(Operands):
    x: Input
    out: Output
    dtype: int = 5


class MemoryHelperGrad(Operands):
    x: Input
    out: Input
    d_out: Input | None
    d_x: Output
    dtype: int = 5


class WhileAttributes(Operands):
    sub_block: Any = None
    is_test: bool = False
    skip_eager_deletion_vars: Sequence[str] = []


class While(WhileAttributes):
    x: Inputs | None
    condition: Inputs
    out: Outputs | None
    step_scopes: Output


class WhileGrad(WhileAttributes):
    x: Inputs | None
    out: Inputs | None
    d_out: Inputs | None
    step_scopes: Input
    d_x: Outputs | None
    original_output_grad: Sequence[str] = []


class WriteToArray(Operands):
    x: Input
    i: Input
    out: Output


class ReadFromArray(Operands):
    x: Input
    i: Input
    x_w: Input | None = named("X_W")
    out: Output


class ArrayLength(Operands):
    x: Input
    out: Output


class Ranked(Operands):
    x: Input
    rank_table: Input
    out: Output


class Joined(Operands):
    axis: int = 0
    use_stack: bool = False


class TensorArrayToTensor(Joined):
    x: Inputs
    out: Output
    out_index: Output


class TensorArrayToTensorGrad(Joined):
    x: Inputs
    out_index: Input
    d_out: Input
    d_x: Outputs | None


class BeamSearchDecode(Operands):
    ids: Input
    scores: Input
    sentence_ids: Output
    sentence_scores: Output
    beam_size: int = 0
    end_id: int = 0


def _sentences(op: Inference) -> Mapping[str, Specs]:
    """How many words all hypotheses have together is known behind the last step."""
    kinds = {"SentenceIds": op.spec("Ids").dtype, "SentenceScores": op.spec("Scores").dtype}
    return {slot: Spec((-1,), kind) for slot, kind in kinds.items()}


def _entry(op: Inference) -> Mapping[str, Specs]:
    """An array has the shape of the entry that was written last; the gradient of a write that of the entry."""
    return {"Out": op.spec("X_W" if op.has("X_W") else "X")}


def _parts(op: Inference) -> Mapping[str, Specs]:
    """Entries have other numbers of rows than what they are parts of."""
    x = op.spec("X")
    return {"Out": x._replace(shape=(-1, *x.shape[1:]))}


def _joined(op: Inference) -> Mapping[str, Specs]:
    """How many entries an array has is not known from its shape."""
    x = op.spec("X")
    rank = len(x.shape) + op.attr("use_stack")
    axis = normal_axis(op, op.attr("axis"), rank)
    rest = x.shape[axis + (not op.attr("use_stack")) :]
    return {
        "Out": Spec((*x.shape[:axis], -1, *rest), x.dtype),
        "OutIndex": Spec((-1,), VarType.INT32),
    }


def _block_attributes(attrs: Mapping[str, Any]) -> Mapping[str, Any]:
    return {"is_scalar_condition": attrs["is_scalar_condition"]}


for _op in (
    Op(
        "conditional_block",
        ConditionalBlock,
        as_declared,
        lod=no_sequences,  # what its ops write has those that they give it
        grad=Grad(
            "conditional_block_grad",
            ("Cond", "Input", "Out", "Out@GRAD", "Scope"),
            ("Input@GRAD",),
            attrs=_block_attributes,
        ),
    ),
    Op("conditional_block_grad", ConditionalBlockGrad),
    Op(
        "select_input",
        SelectInput,
        _selected,
        grad=Grad("select_output", {"X": "Out@GRAD", "Mask": "Mask"}, {"Out": "X@GRAD"}),
    ),
    Op(
        "select_output",
        SelectOutput,
        _like_x(2),
        grad=Grad("select_input", {"X": "Out@GRAD", "Mask": "Mask"}, {"Out": "X@GRAD"}),
    ),
    Op(
        "recurrent",
        Recurrent,
        as_declared,
        lod=no_sequences,  # what its ops write has those that they give it
        grad=Grad(
            "recurrent_grad",
            {
                **{s: s for s in ("inputs", "initial_states", "parameters", "outputs")},
                "step_scopes": "step_scopes",
                "outputs@GRAD": "outputs@GRAD",
                "step_scopes@GRAD": "step_scopes",
            },
            ("inputs@GRAD", "initial_states@GRAD", "parameters@GRAD"),
        ),
    ),
    Op("recurrent_grad", RecurrentGrad),
    Op(
        "rnn_memory_helper",
        MemoryHelper,
        _like_x(1),
        grad=Grad("rnn_memory_helper_grad", ("X", "Out", "Out@GRAD"), ("X@GRAD",)),
    ),
    Op("rnn_memory_helper_grad", MemoryHelperGrad),
    Op(
        "while",
        While,
        as_declared,
        lod=no_sequences,  # what its ops write has those that they give it
        grad=Grad("while_grad", ("X", "Out", "Out@GRAD", "StepScopes"), ("X@GRAD",)),
    ),
    Op("while_grad", WhileGrad),
    Op(
        "write_to_array",
        WriteToArray,
        _like_x(1),
        grad=Grad("read_from_array", {"X": "Out@GRAD", "I": "I", "X_W": "X"}, {"Out": "X@GRAD"}),
    ),
    Op(
        "read_from_array",
        ReadFromArray,
        _entry,
        grad=Grad("write_to_array", {"X": "Out@GRAD", "I": "I"}, {"Out": "X@GRAD"}),
    ),
    Op(
        "lod_tensor_to_array",
        Ranked,
        _parts,
        lod=lambda op: {"Out": op.of("X")[len(op.of("RankTable")) + 1 :]},
        grad=Grad(
            "array_to_lod_tensor", {"X": "Out@GRAD", "RankTable": "RankTable"}, {"Out": "X@GRAD"}
        ),
    ),
    Op(
        "array_to_lod_tensor",
        Ranked,
        _parts,
        lod=lambda op: {
            "Out": (*op.of("RankTable"), op.level("lod_from_lengths", {}), *op.of("X"))
        },
        grad=Grad(
            "lod_tensor_to_array", {"X": "Out@GRAD", "RankTable": "RankTable"}, {"Out": "X@GRAD"}
        ),
    ),
    Op("lod_array_length", ArrayLength, lambda op: {"Out": Spec((1,), VarType.INT64)}),
    Op(
        "tensor_array_to_tensor",
        TensorArrayToTensor,
        _joined,
        grad=Grad("tensor_array_to_tensor_grad", ("X", "OutIndex", "Out@GRAD"), ("X@GRAD",)),
    ),
    Op("tensor_array_to_tensor_grad", TensorArrayToTensorGrad),
    Op(
        "beam_search_decode",
        BeamSearchDecode,
        _sentences,
        lod=lambda op: dict.fromkeys(("SentenceIds", "SentenceScores"), (None, None)),
    ),
):
    BLOCK_OPS[_op.type] = _op
