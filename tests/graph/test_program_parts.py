"""Programs, blocks and operators can be looked at and changed as Paddle's can."""

from __future__ import annotations

import copy
import pickle
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

import rowlock.fluid as fluid
from tests.programs import own_programs

Parts = tuple[Any, Any, Any]


@pytest.fixture
def parts() -> Parts:
    """Return a program, its block, and its only op."""
    with own_programs() as (program, _):
        fluid.layers.scale(fluid.data("x", [-1, 4]), 2.5)
        fluid.layers.create_parameter([2, 3], "float32", name="w")
    block = program.global_block()
    return program, block, block.ops[0]


def test_the_text_of_a_program_is_its_messages(parts: Parts) -> None:
    program, _, _ = parts
    lines = program.to_string(True).splitlines()
    assert lines[:5] == ["blocks {", "  idx: 0", "  parent_idx: -1", "  vars {", '    name: "w"']
    assert lines[5:8] == ["    type {", "      type: LOD_TENSOR", "      lod_tensor {"]
    assert lines[9:12] == ["          data_type: FP32", "          dims: 2", "          dims: 3"]
    text = "\n".join(lines)
    assert '      parameter: "X"\n      arguments: "x"\n' in text
    assert '      name: "scale"\n      type: FLOAT\n      f: 2.5\n' in text
    assert "      need_check_feed: true" not in text and "    need_check_feed: true" in text
    assert lines[-3:] == ["version {", "  version: 1008005", "}"]
    assert "stop_gradient" not in text
    details = program.to_string(True, with_details=True)
    assert "    trainable: True\n    optimize_attr: {'learning_rate': 1.0}\n" in details
    assert details.count("stop_gradient: ") == 3


def test_operators_tell_and_take_their_parts(parts: Parts) -> None:
    _, block, op = parts
    assert (op.type, op.idx, op.input("X"), op.input("ScaleTensor")) == ("scale", 0, ["x"], [])
    assert op.output("Out") == op.output_arg_names == ["scale_0.tmp_0"]
    assert op.attr("scale") == 2.5 and op.has_attr("bias") and not op.has_attr("axis")
    op.set_attr("scale", 3.0)
    assert op.attr("scale") == op.all_attrs()["scale"] == 3.0
    op._remove_attr("scale")
    assert op.attr("scale") == 1.0
    block.create_var(name="z", shape=[-1, 4], dtype="float32")
    op._rename_input("x", "z")
    assert op.input_arg_names == ["z"]


def test_blocks_take_and_give_back(parts: Parts) -> None:
    program, block, op = parts
    x, out = block.var("x"), block.var("scale_0.tmp_0")
    first = block.prepend_op(
        type="relu", inputs={"X": x}, outputs={"Out": block.create_var(name="a")}
    )
    second = block._insert_op(1, type="tanh", inputs={"X": "a"}, outputs={"Out": "b"})
    assert block.ops == [first, second, op] and [one.idx for one in block.ops] == [0, 1, 2]
    assert block.var("b").shape == (-1, 4)
    block._remove_op(1)
    block._remove_var("b")
    assert not block.has_var("b") and block.has_var("a")
    assert [v.name for v in program.list_vars()] == ["x", "scale_0.tmp_0", "w", "a"]
    copied = fluid.Program().global_block()._clone_variable(out)
    assert (copied.name, copied.shape, copied.persistable) == (out.name, out.shape, True)
    parameter = block.create_parameter(name="q", shape=[2], dtype="float32")
    assert block.all_parameters() == [block.var("w"), parameter]
    with pytest.raises(ValueError, match="in its block no more"):
        _ = second.idx


@pytest.mark.parametrize(
    ("refused", "error"),
    [
        (lambda p, b, op: op.attr("scael"), ValueError),
        (lambda p, b, op: op.set_attr("axis", 1), ValueError),
        (lambda p, b, op: op.input("Y"), ValueError),
        (lambda p, b, op: op.output("X"), ValueError),
        (lambda p, b, op: b.var(3), TypeError),
        (lambda p, b, op: b.var("nope"), ValueError),
        (lambda p, b, op: b._remove_var("nope"), ValueError),
        (lambda p, b, op: p.to_string(1), AssertionError),
        (lambda p, b, op: fluid.Program.global_seed("1"), ValueError),
        (lambda p, b, op: setattr(p, "random_seed", 1.5), ValueError),
    ],
)
def test_what_is_not_there_is_refused(
    parts: Parts, refused: Callable[..., Any], error: type[Exception]
) -> None:
    with pytest.raises(error):
        refused(*parts)


def test_a_program_optimized_for_inference_keeps_its_ops_and_tests() -> None:
    with own_programs() as (main, _):
        hidden = fluid.layers.dropout(fluid.layers.fc(fluid.data("x", [None, 3]), 2), 0.5)
        fluid.optimizer.SGD(0.1).minimize(fluid.layers.mean(hidden))
    tested = main._inference_optimize(prune_read_op=False)
    types = [[op.type for op in program.global_block().ops] for program in (main, tested)]
    assert types[0] == types[1]
    is_test = [
        op.attr("is_test")
        for program in (main, tested)
        for op in program.global_block().ops
        if op.type == "dropout"
    ]
    assert is_test == [False, True]


def test_a_global_seed_is_that_of_later_programs() -> None:
    fluid.Program.global_seed(5)
    try:
        assert fluid.Program().random_seed == 5 == fluid.default_main_program().random_seed
    finally:
        fluid.Program.global_seed(0)


def test_copies_of_a_program_are_programs_of_their_own() -> None:
    with own_programs() as (main, startup):
        loss = fluid.layers.mean(fluid.layers.fc(fluid.data("x", [None, 3]), 2))
        fluid.optimizer.Adam(0.1).minimize(loss)
    startup.random_seed = 5
    exe, feed = fluid.Executor(fluid.CPUPlace()), {"x": np.ones((4, 3), "float32")}
    losses = []
    for copied in (lambda pair: pair, copy.deepcopy, lambda pair: pickle.loads(pickle.dumps(pair))):
        step, first = copied((main, startup))
        with fluid.scope_guard(fluid.Scope()):
            exe.run(first)
            losses.append([exe.run(step, feed, [loss.name])[0].item() for _ in range(3)])
        assert str(step) == str(main)
        assert [op.declaration for op in step.global_block().ops] == [
            op.declaration for op in main.global_block().ops
        ]
    assert losses[0] == losses[1] == losses[2] and losses[0][0] != losses[0][2]
