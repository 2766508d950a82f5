"""The op that stands for a region of the graph, which a compiler turns into one program.

``body`` holds the nodes as plain data: op, operands by slot, attributes. Operands are numbers: first those
of X, in order, then each value when it is written; -1 is none. ``results`` numbers what becomes Out.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from .operands import Inputs, Operands, Outputs
from .registry import OPS, Inference, Spec, Specs, define
from .samples import sample

REGION = "xla_region"
Body = Sequence[Mapping[str, Any]]


def infer_body(body: Body, operands: Sequence[Spec]) -> dict[int, Spec]:
    """Return the spec of every value of a region, by number.

    Raises:
        ShapeError: operands of a node do not fit together.
    """
    specs: dict[int, Spec] = dict(enumerate(operands))
    for node in body:
        read = {
            slot: [None if i < 0 else specs[i] for i in numbers]
            for slot, numbers in node["inputs"].items()
        }
        op = OPS[node["op"]]
        results = op.infer(Inference(op, read, node["attrs"], where=node["where"]))
        for slot, numbers in node["outputs"].items():
            for i, spec in zip(numbers, results.get(slot, ()), strict=False):
                if i >= 0:
                    specs[i] = spec
    return specs


def region_shape(op: Inference) -> Mapping[str, Specs]:
    """Results have the specs that the nodes inside derive."""
    specs = infer_body(op.attr("body"), op.specs("X"))
    return {"Out": [specs[i] for i in op.attr("results")]}


_EXAMPLE = [
    {
        "op": "square",
        "inputs": {"X": [0]},
        "outputs": {"Out": [2]},
        "attrs": {"use_mkldnn": False, "use_cudnn": False},
        "where": "train.py:7",
    },
    {
        "op": "sum",
        "inputs": {"X": [2, 1]},
        "outputs": {"Out": [3]},
        "attrs": {"use_mkldnn": False},
        "where": "train.py:7",
    },
]


class Region(Operands):
    x: Inputs
    out: Outputs
    body: Sequence[Mapping[str, Any]] = []
    results: Sequence[int] = []


define(
    REGION,
    Region,
    region_shape,
    in_place={"Out": "X"},
    samples=(sample("X* [3 4] [3 4]", body=_EXAMPLE, results=[3, 2]),),
)
