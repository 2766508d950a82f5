"""Nets with deformable convolutions, trees, and trees of classes train as Paddle 1.8.5 trains them."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import rowlock.fluid as fluid
from rowlock.strategies.errors import InvalidType, InvalidValue, ShapeError
from tests.programs import own_programs
from tests.reference import bent_nets

pytestmark = pytest.mark.usefixtures("no_compiled_loops")
REFERENCE = json.loads(Path(bent_nets.__file__).with_suffix(".json").read_text())
L = fluid.layers


@pytest.mark.parametrize("name", REFERENCE)
def test_nets_train_as_paddles_do(name: str) -> None:
    ours, expected = bent_nets.trained(fluid, name), REFERENCE[name]
    if not name.endswith("in_place"):  # that layer is a batch norm and an activation here
        assert ours["ops"] == expected["ops"]
    np.testing.assert_allclose(ours["losses"], expected["losses"], rtol=1e-5)


def test_an_op_that_writes_over_its_operand_passes_the_gradient_on() -> None:
    """As ``inplace_abn`` stands in Paddle's programs: its result has its operand's name."""

    def gradients(in_place: bool) -> list[Any]:
        with own_programs() as (main, _):
            x = fluid.data("x", [4, 3])
            x.stop_gradient = False
            hidden = L.scale(x, 1.5)
            operands = {
                slot: L.fill_constant([3], "float32", value)
                for slot, value in (("Scale", 1.3), ("Bias", 0.2), ("Mean", 0.0), ("Variance", 1.0))
            }
            block = main.global_block()
            y = hidden if in_place else block.create_var(name="y")
            outs = {slot: block.create_var(name=slot) for slot in ("SavedMean", "SavedVariance")}
            statistics = {f"{slot}Out": operands[slot] for slot in ("Mean", "Variance")}
            block.append_op(
                "inplace_abn",
                {"X": hidden, **operands},
                {"Y": y, **outs, **statistics},
                {"activation": "elu"},
            )
            loss = L.reduce_sum(L.square(y) * x)
            expected = fluid.gradients([loss], [x])
        rows = np.random.default_rng(3).standard_normal((4, 3)).astype("f4")
        exe = fluid.Executor(fluid.CPUPlace())
        return exe.run(main, feed={"x": rows}, fetch_list=[loss, *expected])

    for one, other in zip(gradients(True), gradients(False), strict=True):
        np.testing.assert_array_equal(one, other)


def _data() -> dict[str, Any]:
    return {
        name: fluid.data(name, shape, dtype) for name, (shape, dtype) in bent_nets.SHAPES.items()
    }


MISTAKES: list[tuple[Callable[[Any], Any], type[Exception], str]] = [
    (
        lambda d: L.deformable_conv(d["images"], d["images"], None, 4, 3),
        InvalidType,
        "deformable_conv: mask must be a Variable",
    ),
    (
        lambda d: L.deformable_conv(d["images"], d["images"], d["images"], 4, 3),
        ShapeError,
        r"deformable_conv: Offset must be .* where 2.taps = 18, rows = 4, columns = 4",
    ),
    (
        lambda d: fluid.contrib.layers.tree_conv(d["words"], d["words"], 4),
        InvalidType,
        "tree_conv: edge_set must hold integers",
    ),
    (
        lambda d: fluid.contrib.layers.tree_conv(d["words"], d["edges"], 4, param_attr=False),
        InvalidValue,
        "tree_conv: param_attr cannot be False",
    ),
    (lambda d: L.hsigmoid(d["label"], d["label"], 5), InvalidType, "hsigmoid: input"),
    (
        lambda d: L.filter_by_instag(d["label"], L.fc(d["words"], 4), d["label"], True),
        InvalidType,
        "filter_by_instag: ins_tag",
    ),
    (
        lambda d: L.hsigmoid(L.fc(d["words"], 4), d["label"], 1),
        InvalidValue,
        "hsigmoid: num_classes must be 2 or more, got 1",
    ),
    (
        lambda d: L.hsigmoid(L.fc(d["words"], 4), d["label"], 5, path_table=d["table"]),
        InvalidValue,
        "hsigmoid: path_table and path_code go with is_custom",
    ),
    (
        lambda d: L.similarity_focus(d["images"], 0, [1]),
        InvalidValue,
        "similarity_focus: axis must be 1, 2 or 3",
    ),
    (
        lambda d: L.anchor_generator(d["images"], 8.0, 1.0, stride=[4.0]),
        InvalidValue,
        "anchor_generator: stride must be a list of 2 numbers",
    ),
    (
        lambda d: L.density_prior_box(d["images"], d["images"], [1, 2], [4.0], [1.0]),
        InvalidValue,
        "density_prior_box: densities and fixed_sizes must have one length",
    ),
]


@pytest.mark.parametrize(("build", "kind", "text"), MISTAKES, ids=range(len(MISTAKES)))
def test_mistakes_say_what_to_do(build: Any, kind: type[Exception], text: str) -> None:
    with fluid.program_guard(fluid.Program(), fluid.Program()), pytest.raises(kind, match=text):
        build(_data())


def test_a_class_outside_of_the_tree_fails_the_step() -> None:
    main, startup = fluid.Program(), fluid.Program()
    with fluid.program_guard(main, startup):
        loss = bent_nets.NETS["classes"](fluid)
    exe = fluid.Executor(fluid.CPUPlace())
    with fluid.scope_guard(fluid.Scope()):
        exe.run(startup)
        feed = {name: bent_nets.feeds(0)[name] for name in ("words", "label")}
        with pytest.raises(Exception, match=r"label 7 is outside the 5 classes \(0 to 4\)"):
            exe.run(main, feed={**feed, "label": np.full((4, 1), 7)}, fetch_list=[loss])
