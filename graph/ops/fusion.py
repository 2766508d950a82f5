"""The op that stands for a group of elementwise ops; its body is that of a region (see ``region.py``)."""

from __future__ import annotations

from .region import Region, infer_body, region_shape
from .registry import Inference, Place, Spec, define
from .samples import sample

FUSION = "fusion_group"
_WHERE = "train.py:7"
_LIBRARY = {"use_mkldnn": False, "use_cudnn": False}
_EXAMPLE = [
    {
        "op": "elementwise_add",
        "inputs": {"X": [0], "Y": [1]},
        "outputs": {"Out": [3]},
        "attrs": {"axis": 1, "use_mkldnn": False, "x_data_format": "", "y_data_format": ""},
        "where": _WHERE,
    },
    {
        "op": "tanh",
        "inputs": {"X": [3]},
        "outputs": {"Out": [4]},
        "attrs": _LIBRARY,
        "where": _WHERE,
    },
    {
        "op": "tanh_grad",
        "inputs": {"Out": [4], "Out@GRAD": [2]},
        "outputs": {"X@GRAD": [5]},
        "attrs": _LIBRARY,
        "where": _WHERE,
    },
    {
        "op": "elementwise_add_grad",
        "inputs": {"X": [0], "Y": [1], "Out@GRAD": [5]},
        "outputs": {"X@GRAD": [-1], "Y@GRAD": [6]},
        "attrs": {"axis": 1, "use_mkldnn": False, "x_data_format": "", "y_data_format": ""},
        "where": _WHERE,
    },
]


def extent(spec: Spec) -> tuple[int, tuple[int, ...]]:
    """Order the values of a group: all that it computes is about elements of the largest."""
    return len(spec.shape), spec.shape


def _places(op: Inference) -> list[Place]:
    """What has every element once may lie where an operand of the same kind does: it is read first."""
    specs = infer_body(op.attr("body"), op.specs("X"))
    shape = max(specs.values(), key=extent).shape
    return [
        ("Out", k, "X", j)
        for k, value in enumerate(op.attr("results"))
        for j, spec in enumerate(op.specs("X"))
        if spec.shape == shape and specs[value] == spec
    ]


define(
    FUSION,
    Region,
    region_shape,
    places=_places,
    samples=(sample("X* [2 3 4] [3] [2 3 4]", body=_EXAMPLE, results=[4, 5, 6]),),
)
