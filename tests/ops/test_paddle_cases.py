"""Replays what Paddle 1.8.5 computed off the defaults of every op: values, shapes, types and gradients.

``tests/reference/generate_op_cases.py`` drew the cases. An op's own test says which of them differ.
"""

from __future__ import annotations

import json
import random
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from rowlock.executor.kernels.back_ends import LIBRARIES
from rowlock.executor.kernels.capabilities import installed
from rowlock.executor.kernels.registry import KERNELS, bind
from rowlock.graph.ir.graph import Node, Value
from rowlock.graph.ops.collective import COLLECTIVES
from rowlock.graph.ops.registry import OPS
from rowlock.graph.program.known import Number, with_numbers
from tests.ops import harness
from tests.ops.harness import Arrays, copies, gradients, infer, run, specs_of
from tests.ops.test_conformance import GRADS, PROTOS
from tests.reference.op_cases.inputs import digest, draw, weights

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
}
NEAR = {"float32": 1e-5, "float64": 1e-6}  # digests are written with seven digits


def test_every_op_of_paddles_is_sampled() -> None:
    declared = {n for n in OPS if n in PROTOS and n not in GRADS and n not in COLLECTIVES}
    assert declared - set(RECORD) == set()


def chosen(
    name: str, inputs: Any, outputs: Any, attrs: dict[str, Any], dev: Any, back_end: str = ""
) -> Any:
    """Bind the first library of a host that takes the node, else NumPy."""
    held = {s: [a for a in arrays if a is not None] for s, arrays in inputs.items()}
    specs = specs_of(held)
    made = infer(OPS[name], specs, attrs)
    reads = {s: tuple(Value(s, spec) for spec in many) for s, many in specs.items()}
    writes = {s: tuple(Value(s, spec) for spec in many) for s, many in made.items()}
    node = Node(name, reads, writes, attrs)
    for library in LIBRARIES["numpy"]:
        kernel = KERNELS.get((name, library))
        if kernel is None or library == "xla":
            continue
        here = installed().keys() >= {library, *kernel.needs}
        if here and (kernel.takes is None or kernel.takes(node)):
            return bind(name, inputs, outputs, attrs, dev, library)
    return bind(name, inputs, outputs, attrs, dev, back_end)


def differences(name: str, case: Any) -> list[str]:
    """Return what an op makes otherwise than Paddle did in a case."""
    seed, described, given, expected, slopes = case
    op = OPS[name]
    drawn = draw(described, seed)
    attrs = {**op.attrs, **{k: v for k, v in given.items() if k in op.attrs}}
    numbers = {s: [Number(a, s) for a in drawn[s]] for s in op.numbers if s in drawn}
    attrs = with_numbers(op, numbers, attrs)
    inputs: Arrays = {slot: arrays for slot, arrays in drawn.items() if slot not in numbers}
    outputs = run(op, copies(inputs), attrs)
    expected = {slot: many for slot, many in expected.items() if (name, slot) not in LEFT_OUT}
    found = compared(outputs, expected, values=name not in DRAWN)
    if slopes:
        targets = sorted(
            (f"{s}_out_{i}", s, i)  # in the order of Paddle's variables
            for s, many in expected.items()
            for i, _ in enumerate(many)
            if s not in SIDE
        )
        floats = [t for t in targets if outputs[t[1]][t[2]].dtype.kind == "f"]
        seeds: Arrays = {}
        for number, (_, slot, i) in enumerate(floats):
            array = outputs[slot][i]
            seeds.setdefault(slot, []).append(weights(array.shape, number).astype(array.dtype))
        made = gradients(op, copies(inputs), outputs, seeds, attrs)
        found += compared(made, slopes, what="gradient of ")
    return found


SIDE = {
    "MeanOut", "VarianceOut", "SavedMean", "SavedVariance", "Mean", "Variance", "Softmax", "Residual",
    "IntermediateOut", "XShape", "MatchX", "Indices", "Mask", "CentersOut", "Means", "MidOut", "Norm",
    "SampleCenterDiff", "Scales", "Total_weight", "XNorm", "YNorm", "sub_result",
}  # fmt: skip


def compared(made: Arrays, expected: Any, what: str = "", values: bool = True) -> list[str]:
    """Return how arrays differ from digests."""
    found = []
    for slot, many in expected.items():
        for array, entry in zip(made.get(slot, []), many, strict=False):
            if entry is None or array is None:
                continue
            shape, dtype, numbers = entry
            if list(array.shape) != shape or str(array.dtype) != dtype:
                found.append(
                    f"{what}{slot} is {array.dtype}{list(array.shape)}, not {dtype}{shape}"
                )
                continue
            ours, theirs = np.array(digest(array)), np.array(numbers, "float64")
            size = np.abs(theirs[np.isfinite(theirs)]).max(initial=0)
            near = NEAR.get(dtype, 1e-6) * max(size, 0.1)
            if values and not np.allclose(ours, theirs, rtol=0, atol=near, equal_nan=True):
                found.append(f"{what}{slot} is {ours}, not {theirs}")
    return found


@pytest.mark.parametrize(
    ("libraries", "part"),
    [(False, 1), (True, 3), pytest.param(True, 1, marks=pytest.mark.slow)],
    ids=["numpy", "some, by libraries", "libraries"],
)
@pytest.mark.parametrize("name", sorted(RECORD))
def test_cases(name: str, libraries: bool, part: int, monkeypatch: pytest.MonkeyPatch) -> None:
    """Every case, or one of so many."""
    if libraries:
        if not any((name, library) in KERNELS for library in LIBRARIES["numpy"]):
            pytest.skip("NumPy alone computes it")
        monkeypatch.setattr(harness, "bind", chosen)
    wrong = []
    cases = list(enumerate(RECORD[name]))
    for number, case in random.sample(cases, -(-len(cases) // part)):
        try:
            found = differences(name, case)
        except Exception as error:  # the list of all is what helps
            found = [f"{type(error).__name__}: {error}"]
        wrong += [f"{number} {case[1]} {case[2]}: {text}" for text in found]
    assert not wrong, f"{len(wrong)} of {len(RECORD[name])}\n" + "\n".join(wrong)
