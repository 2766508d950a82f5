"""Replays what Paddle 1.8.5 computed off the defaults of every op: values, shapes, types and gradients.

``tests/reference/generate_op_cases.py`` drew the cases. An op's own test says which of them differ.
"""

from __future__ import annotations

import json
import os
import random
from collections.abc import Callable, Collection, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from rowlock import fluid
from rowlock.executor.kernels.back_ends import LIBRARIES
from rowlock.executor.kernels.capabilities import installed
from rowlock.executor.kernels.registry import KERNELS, bind
from rowlock.graph.ir.graph import Node, Value
from rowlock.graph.ops.collective import COLLECTIVES
from rowlock.graph.ops.registry import OPS
from rowlock.graph.program.known import Number, with_numbers
from tests.ops import harness
from tests.ops.harness import Arrays, copies, gradients, infer, repeated, run, specs_of
from tests.ops.test_conformance import GRADS, PROTOS, directions, slope
from tests.reference import dynamic_nets, sequences
from tests.reference.op_cases.inputs import digest, draw, weighted

RECORD = {
    op_type: cases
    for record in (Path(__file__).parents[1] / "reference" / "op_cases").glob("*.json")
    for op_type, cases in json.loads(record.read_text()).items()
}
DRAWN = {
    "gaussian_random", "gaussian_random_batch_size_like", "randint", "random_crop", "randperm", "sampling_id",
    "seed", "shuffle_batch", "truncated_gaussian_random", "uniform_random", "uniform_random_batch_size_like",
}  # fmt: skip
# What only the backward pass reads: Paddle leaves zeros where ours has what its gradient op divides by.
LEFT_OUT = {
    ("cross_entropy2", "MatchX"),
    ("batch_norm", "SavedMean"),
    ("batch_norm", "SavedVariance"),
    ("inplace_abn", "SavedMean"),
    ("inplace_abn", "SavedVariance"),
    ("warpctc", "WarpCTCGrad"),  # ours is like Logits
    ("attention_lstm", "AttentionFCOut"),  # ours has each sequence's, not the last one's
    ("tdm_sampler", "Out"),  # drawn
    ("attention_lstm", "LSTMOUT"),  # Paddle writes products over its gates
}
# Gradients of Paddle's that are not those of what it computes (docs/differences.md): by op, the operand and in
# which cases, by shapes and attributes. Ours are held to differences instead.
WRONG_SLOPES: dict[str, tuple[str, Callable[[dict[str, Any], dict[str, Any]], bool]]] = {
    "bpr_loss": ("X", lambda shapes, attrs: len(shapes["X"]) > 2),
    "conv2d_transpose": (
        "Input Filter",
        lambda shapes, attrs: (
            attrs["data_format"] == "NHWC"
            and 1 < attrs["groups"] < shapes["Filter"][0]
            and shapes["Filter"][1] > 1
        ),
    ),
    "deformable_psroi_pooling": (
        "Input Trans",
        lambda shapes, attrs: (
            not attrs["no_trans"]
            and max(attrs["part_size"]) > 1
            and max(attrs["pooled_height"], attrs["pooled_width"]) > 1
        ),
    ),
    "fused_elemwise_activation": (
        "Y",
        lambda shapes, attrs: (
            attrs["functor_list"] in (["elementwise_mul", "tanh"], ["elementwise_mul", "sigmoid"])
            and shapes["X"] != shapes["Y"]
        ),
    ),
    "pad_constant_like": ("Y", lambda shapes, attrs: shapes["X"] != shapes["Y"]),
    "scatter": ("X", lambda shapes, attrs: True),
    "shuffle_channel": ("X", lambda shapes, attrs: attrs["group"] > 1),
    "softmax_with_cross_entropy": (
        "Logits",
        lambda shapes, attrs: not attrs["soft_label"] and attrs["ignore_index"] >= 0,
    ),
    "spectral_norm": ("Weight", lambda shapes, attrs: True),
    "tree_conv": ("NodesVector", lambda shapes, attrs: True),
}
# In programs of tests/contract/test_decoding.py and of test_sparse_rows.py.
ELSEWHERE = {
    *("get_tensor_from_selected_rows", "merge_selected_rows"),
    "rank_attention",  # only on GPUs in Paddle
}
NEAR = {"float32": 1e-5, "float64": 1e-6}  # digests are written with seven digits
NEAR_SLOPES = {**NEAR, "float32": 3e-5}  # after twice as many roundings


def test_every_op_of_paddles_is_sampled() -> None:
    declared = {n for n in OPS if n in PROTOS and n not in GRADS and n not in COLLECTIVES}
    assert declared - set(RECORD) - in_programs() == ELSEWHERE


def test_every_gradient_of_paddles_is_sampled() -> None:
    sampled = {n for n, cases in RECORD.items() if any(slopes for *_, slopes in cases)}
    differentiable = {n for n in RECORD if OPS[n].grad}
    # Paddle has no gradient of diag_embed; inplace_abn and shuffle_batch cannot be asked for theirs twice.
    assert differentiable - sampled == {"diag_embed", "inplace_abn", "shuffle_batch"}


def in_programs() -> set[str]:
    """Return the ops of programs on sequences, whose results and gradients are compared as a whole."""
    types = set()
    for build in sequences.COMPUTED.values():
        with fluid.program_guard(fluid.Program(), fluid.Program()), fluid.unique_name.guard():
            build(fluid)
            types |= {op.type for op in fluid.default_main_program().global_block().ops}
    for name in dynamic_nets.Nets(fluid).cases():
        main, *_ = dynamic_nets.build(fluid, name)
        types |= {op.type for block in main.blocks for op in block.ops}
    return types


def chosen(
    name: str,
    inputs: Any,
    outputs: Any,
    attrs: dict[str, Any],
    dev: Any,
    back_end: str = "",
    libraries: Sequence[str] = LIBRARIES["numpy"],
    here: Collection[str] | None = None,
) -> Any:
    """Bind the first of some libraries, by default of a host, that takes the node, else the array module.

    ``here``: the libraries that there are (None: those of this process).
    """
    present_libraries = installed().keys() if here is None else here
    present = {s: [a for a in arrays if a is not None] for s, arrays in inputs.items()}
    specs = specs_of(present)
    results = infer(OPS[name], specs, attrs, present)
    reads = {s: tuple(Value(s, spec) for spec in many) for s, many in specs.items()}
    writes = {s: tuple(Value(s, spec) for spec in many) for s, many in results.items()}
    node = Node(name, reads, writes, attrs)
    for library in libraries:
        kernel = KERNELS.get((name, library))
        if kernel is None or library == "xla":
            continue
        able = {library, *kernel.needs} <= {*present_libraries}
        if able and (kernel.takes is None or kernel.takes(node)):
            return bind(name, inputs, outputs, attrs, dev, library)
    return bind(name, inputs, outputs, attrs, dev, back_end)


def operands(name: str, case: Any) -> tuple[Arrays, dict[str, Any]]:
    """Return the inputs and attributes of a case."""
    seed, described, settings, *_ = case
    op = OPS[name]
    drawn = draw(described, seed)
    attrs = {**op.attrs, **{k: v for k, v in settings.items() if k in op.attrs}}
    numbers = {s: [Number(a, s) for a in drawn[s]] for s in op.numbers if s in drawn}
    attrs = with_numbers(op, numbers, attrs)
    return {slot: arrays for slot, arrays in drawn.items() if slot not in numbers}, attrs


def wrong_slopes(name: str, case: Any) -> set[str]:
    """Return the operands whose gradients Paddle has wrong in a case."""
    if name not in WRONG_SLOPES:
        return set()
    slots, holds = WRONG_SLOPES[name]
    shapes = {slot: many[0][0] for slot, many in case[1].items()}
    return set(slots.split()) if holds(shapes, {**OPS[name].attrs, **case[2]}) else set()


def differences(name: str, case: Any) -> list[str]:
    """Return what an op makes otherwise than Paddle did in a case."""
    *_, expected, slopes = case
    op = OPS[name]
    inputs, attrs = operands(name, case)
    outputs = run(op, copies(inputs), attrs)
    expected = {slot: many for slot, many in expected.items() if (name, slot) not in LEFT_OUT}
    texts = compared(outputs, expected, values=name not in DRAWN)
    if slopes:
        factors = weighted(name, {slot: outputs[slot] for slot in expected})
        slots = gradients(op, copies(inputs), outputs, factors, attrs)
        wrong = wrong_slopes(name, case)
        right = {slot: many for slot, many in slopes.items() if slot not in wrong}
        texts += compared(slots, right, what="gradient of ")
    return texts


@pytest.mark.parametrize("name", sorted(WRONG_SLOPES))
def test_slopes_that_paddle_has_wrong(name: str) -> None:
    """Ours are those of the results, by differences in float64, and one of Paddle's is another."""
    others = 0
    for case in RECORD[name]:
        wrong = wrong_slopes(name, case) & case[4].keys()
        if not wrong or case[2].get("power_iters"):  # its rounds pass no gradient on
            continue
        slopes = slopes_by_differences(name, case, wrong)
        others += bool(compared(slopes, {slot: case[4][slot] for slot in wrong}))
    assert others, "Paddle has them right: no need to leave them out"


def slopes_by_differences(name: str, case: Any, slots: set[str]) -> Arrays:
    """Return our gradients of a case in its own types, once those in float64 agree with differences."""
    op = OPS[name]
    inputs, attrs = operands(name, case)
    for arrays in inputs.values():
        arrays[:] = [a.astype("float64") if a.dtype.kind == "f" else a for a in arrays]
    outputs = run(op, inputs, attrs)
    factors = weighted(name, {slot: outputs[slot] for slot in case[3]})
    slopes = gradients(op, copies(inputs), outputs, factors, attrs)
    run_again = repeated(op, inputs, attrs)

    def total() -> float:
        sums = run_again()
        return sum(float((sums[slot][0] * factors[slot][0]).sum()) for slot in factors)

    for slot in slots:
        array, grad = inputs[slot][0], slopes[slot][0]
        for direction in directions(array):
            expected = slope(total, array, direction)
            np.testing.assert_allclose((grad * direction).sum(), expected, atol=1e-6)
    return {slot: [slopes[slot][0].astype(case[4][slot][0][1])] for slot in slots}


def compared(results: Arrays, expected: Any, what: str = "", values: bool = True) -> list[str]:
    """Return how arrays differ from digests."""
    tolerances = NEAR_SLOPES if what else NEAR
    texts = []
    for slot, many in expected.items():
        arrays = results.get(slot, [])
        if len(arrays) != len(many) and any(many):
            texts.append(f"{len(arrays)} of {len(many)} {what}{slot}")
        for array, entry in zip(arrays, many, strict=False):
            if entry is None or array is None:
                continue
            shape, dtype, numbers = entry
            if list(array.shape) != shape or str(array.dtype) != dtype:
                texts.append(
                    f"{what}{slot} is {array.dtype}{list(array.shape)}, not {dtype}{shape}"
                )
                continue
            ours, theirs = np.array(digest(array)), np.array(numbers, "float64")
            size = np.abs(theirs[np.isfinite(theirs)]).max(initial=0)
            near = tolerances.get(dtype, 1e-6) * max(size, 0.1)
            if values and not np.allclose(ours, theirs, rtol=0, atol=near, equal_nan=True):
                texts.append(f"{what}{slot} is {ours}, not {theirs}")
    return texts


@pytest.mark.parametrize("libraries", [False, True], ids=["numpy", "libraries"])
@pytest.mark.parametrize("name", sorted(RECORD))
def test_cases(name: str, libraries: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    """Every case; by libraries, which compile each, one in three that the seed draws."""
    if libraries:
        if not any((name, library) in KERNELS for library in LIBRARIES["numpy"]):
            pytest.skip("NumPy alone computes it")
        monkeypatch.setattr(harness, "bind", chosen)
    wrong = []
    cases = list(enumerate(RECORD[name]))
    part = 3 if libraries and not os.environ.get("ROWLOCK_TEST_LONG") else 1
    for number, case in random.sample(cases, -(-len(cases) // part)):
        try:
            texts = differences(name, case)
        except Exception as error:  # the list of all is what helps
            texts = [f"{type(error).__name__}: {error}"]
        wrong += [f"{number} {case[1]} {case[2]}: {text}" for text in texts]
    assert not wrong, f"{len(wrong)} of {len(RECORD[name])}\n" + "\n".join(wrong)
