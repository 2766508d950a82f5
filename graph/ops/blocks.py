"""Ops that hold a block of the program, ops that pass values in and out of such blocks, and arrays of tensors.

They have no kernels: when a program is read into a graph, their blocks become ops like any others (see
``graph/ir/branches.py`` and ``graph/ir/recurrent.py``). Slots and attributes are Paddle's.
"""

from __future__ import annotations

from collections.abc import Mapping
from functools import reduce
from typing import Any

from .lod import no_sequences
from .operands import record_of
from .registry import Grad, Inference, ShapeRule, Spec, Specs, define_block, slope
from .rules import as_declared
from .shapes import Sized


def _like_x(results: int) -> ShapeRule:
    return lambda op: {op.op.output_slots[0].name: [op.spec("X")] * results}


def _selected(op: Inference) -> Mapping[str, Specs]:
    """Like the first of X: the result of the branch that is taken where the condition is false.

    A size that another of them is known not to have is unknown.
    """
    first, *others = op.specs("X")
    return {"Out": reduce(either, others, first)}


def either(first: Spec, second: Spec) -> Spec:
    """Return the spec of a value that is one of two: sizes that are known to differ become unknown."""
    if len(first.shape) != len(second.shape):
        return first
    sizes = zip(first.shape, second.shape, strict=True)
    return first._replace(shape=tuple(n if m in (n, -1) else -1 for n, m in sizes))


_BRANCH: dict[str, Any] = {"sub_block": None, "is_scalar_condition": False}
_RECURRENT: dict[str, Any] = {
    "has_states": False,
    "ex_states": [],
    "states": [],
    "sub_block": None,
    "reverse": False,
    "is_train": True,
    "skip_eager_deletion_vars": [],
}
_RECURRENT_READS = "inputs:inputs*? initial_states:initial_states*? parameters:parameters*?"
_WHILE: dict[str, Any] = {"sub_block": None, "is_test": False, "skip_eager_deletion_vars": []}
_RANKED = record_of("x rank_table", "out")
# Entries have other numbers of rows than the tensor that they are parts of.
_PARTS = Sized("X [rows ...] -> Out [others ...]")


def _entry(op: Inference) -> Mapping[str, Specs]:
    """An array has the shape of the entry that was written last; the gradient of a write that of the entry."""
    return {"Out": op.spec("X_W" if op.has("X_W") else "X")}


def _block_attributes(attrs: Mapping[str, Any]) -> Mapping[str, Any]:
    return {"is_scalar_condition": attrs["is_scalar_condition"]}


define_block(
    "conditional_block",
    record_of("cond* input*?", "out*? scope?", **_BRANCH, skip_eager_deletion_vars=[]),
    as_declared,
    lod=no_sequences,  # what its ops write has those that they give it
    grad=Grad(
        "conditional_block_grad",
        ("Cond", "Input", "Out", "Out@GRAD", "Scope"),
        ("Input@GRAD",),
        attrs=_block_attributes,
    ),
)
define_block(
    "conditional_block_grad",
    record_of("cond* input*? out*? d_out*? scope?", "d_input*?", **_BRANCH),
)
define_block(
    "select_input",
    record_of("x* mask", "out"),
    _selected,
    grad=Grad.swap("select_output", "Mask"),
)
define_block(
    "select_output",
    record_of("x mask", "out*"),
    _like_x(2),
    grad=Grad.swap("select_input", "Mask"),
)
define_block(
    "recurrent",
    record_of(_RECURRENT_READS, "outputs:outputs*? step_scopes:step_scopes?", **_RECURRENT),
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
)
define_block(
    "recurrent_grad",
    record_of(
        f"{_RECURRENT_READS} outputs:outputs*? step_scopes:step_scopes? "
        "d_outputs:outputs@GRAD*? d_step_scopes:step_scopes@GRAD?",
        "d_inputs:inputs@GRAD*? d_initial_states:initial_states@GRAD*? "
        "d_parameters:parameters@GRAD*?",
        **_RECURRENT,
    ),
)
define_block(
    "rnn_memory_helper",
    record_of("x", "out", dtype=5),
    _like_x(1),
    slope=slope("x out d_out?", "d_x"),
)
define_block(
    "while",
    record_of("x*? condition*", "out*? step_scopes", **_WHILE),
    as_declared,
    lod=no_sequences,  # what its ops write has those that they give it
    grad=Grad("while_grad", ("X", "Out", "Out@GRAD", "StepScopes"), ("X@GRAD",)),
)
define_block(
    "while_grad",
    record_of("x*? out*? d_out*? step_scopes", "d_x*?", **_WHILE, original_output_grad=[]),
)
define_block(
    "write_to_array",
    record_of("x i", "out"),
    _like_x(1),
    grad=Grad("read_from_array", {"X": "Out@GRAD", "I": "I", "X_W": "X"}, {"Out": "X@GRAD"}),
)
define_block(
    "read_from_array",
    record_of("x i x_w:X_W?", "out"),
    _entry,
    grad=Grad.swap("write_to_array", "I"),
)
define_block(
    "lod_tensor_to_array",
    _RANKED,
    _PARTS,
    lod=lambda op: {"Out": op.of("X")[len(op.of("RankTable")) + 1 :]},
    grad=Grad.swap("array_to_lod_tensor", "RankTable"),
)
define_block(
    "array_to_lod_tensor",
    _RANKED,
    _PARTS,
    lod=lambda op: {"Out": (*op.of("RankTable"), op.level("lod_from_lengths", {}), *op.of("X"))},
    grad=Grad.swap("lod_tensor_to_array", "RankTable"),
)
define_block("lod_array_length", record_of("x", "out"), Sized("X -> Out int64 [1]"))
define_block(
    "tensor_array_to_tensor",
    record_of("x*", "out out_index", axis=0, use_stack=False),
    Sized(  # how many entries an array has is not known from its shape
        "X -> Out [*before entries *after], OutIndex int32 [entries]",
        "at = front(axis, [1, *X[0]] if use_stack else X[0])",
        "before, after = X[0][:at], X[0][at if use_stack else at + 1 :]",
    ),
    slope=slope("x out_index d_out", "d_x"),
)
define_block(
    "beam_search_decode",
    record_of("ids scores", "sentence_ids sentence_scores", beam_size=0, end_id=0),
    # how many words all hypotheses have is known only after the last step
    Sized("Ids, Scores -> SentenceIds as Ids [words], SentenceScores as Scores [words]"),
    lod=lambda op: dict.fromkeys(("SentenceIds", "SentenceScores"), (None, None)),
)
