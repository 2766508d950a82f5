"""Programs are rewritten for mixed precision as Paddle rewrites them, and as the lists say."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import rowlock.fluid as fluid
from rowlock.executor.kernels.xla.lowering import can_lower
from rowlock.graph.ir.reader import from_program
from rowlock.graph.training.amp.lists import AutoMixedPrecisionLists, AutoMixedPrecisionLists18
from rowlock.graph.training.amp.optimizer import MixedPrecision, Scaling
from rowlock.graph.training.amp.rewrite import Rules, fp16_guard, rewrite
from rowlock.strategies.errors import InvalidState, InvalidType, InvalidValue
from rowlock.strategies.types import VarType
from tests.programs import own_programs

FILES = Path(__file__).parents[1] / "reference"
PROGRAMS = {
    name: json.loads((FILES / f"{name}.json").read_text())["programs"] for name in ("amp", "amp185")
}
CASES = [(name, case) for name, cases in PROGRAMS.items() for case in cases]
WORD = {VarType.FP16: "fp16", VarType.BF16: "bf16", VarType.FP32: "fp32"}
RULES = {"amp": AutoMixedPrecisionLists, "amp185": AutoMixedPrecisionLists18}
layers = fluid.layers


def mlp() -> Any:
    return layers.fc(layers.relu(layers.fc(fluid.data("x", [None, 8]), 16)), 3)


def conv() -> Any:
    image = layers.conv2d(fluid.data("x", [None, 1, 8, 8]), 4, 3, bias_attr=False)
    return layers.fc(layers.relu(layers.batch_norm(image)), 3)


def residual() -> Any:
    hidden = layers.fc(fluid.data("x", [None, 8]), 8)
    return layers.fc(layers.elementwise_add(hidden, layers.softmax(hidden)), 3)


def rows() -> Any:
    vectors = fluid.embedding(fluid.data("ids", [None, 2], "int64"), [10, 4])
    return layers.fc(layers.reshape(vectors, [-1, 8]), 3)


def early() -> Any:
    return layers.fc(layers.relu(fluid.data("x", [None, 8])), 3)


NETS = {"mlp": mlp, "conv": conv, "residual": residual, "rows": rows, "early": early}


def built(net: Callable[[], Any]) -> tuple[fluid.Program, Any]:
    """A program that ends in a loss, and the loss."""
    with own_programs() as (main, _):
        label = fluid.data("y", [None, 1], "int64")
        loss = layers.mean(layers.softmax_with_cross_entropy(net(), label))
    return main, loss


def word(block: Any, name: str) -> str:
    return WORD.get(block.var(name).dtype, "other")


def ops_of(main: fluid.Program) -> list[Any]:
    """[type, types read, types written] of every op but casts."""
    block = main.global_block()
    return [
        [op.type, *({s: [word(block, n) for n in ns] for s, ns in slots.items()}
                    for slots in (op.inputs, op.outputs))]
        for op in block.ops if op.type != "cast"
    ]  # fmt: skip


def casts_of(main: fluid.Program) -> list[list[str]]:
    block = main.global_block()
    return [
        [op.input("X")[0], word(block, op.output("Out")[0])]
        for op in block.ops
        if op.type == "cast"
    ]


def rules(**settings: Any) -> Rules:
    return Rules(AutoMixedPrecisionLists(), **settings)


@pytest.mark.parametrize(("name", "case"), CASES)
def test_ops_and_casts_are_paddles(name: str, case: str) -> None:
    net, level, dtype = case.split()
    low = VarType.BF16 if dtype == "bfloat16" else VarType.FP16
    main, _ = built(NETS[net])
    rewrite(main, Rules(RULES[name](), low, level, eager=name == "amp"))
    expected = PROGRAMS[name][case]
    assert sorted(casts_of(main)) == expected["casts"]
    assert [op[0] for op in ops_of(main)] == [
        {"reduce_mean": "mean"}.get(op[0], op[0]) for op in expected["ops"]
    ]
    unused = {"XShape", "ReserveSpace", "Mask"}  # nobody computes with them
    for mine, theirs in zip(ops_of(main), expected["ops"], strict=True):
        for ours, wanted in zip(mine[1:], theirs[1:], strict=True):
            shared = set(ours) & set(wanted) - unused
            assert {s: ours[s] for s in shared} == {s: wanted[s] for s in shared}, mine[0]


def test_a_variable_is_cast_once_for_each_type() -> None:
    def net() -> Any:
        x = fluid.data("x", [None, 8])
        one, other = layers.fc(x, 3), layers.fc(x, 3)
        return layers.elementwise_add(layers.exp(one), layers.exp(other)) + layers.exp(one)

    main, _ = built(net)
    rewrite(main, rules())
    casts = casts_of(main)
    assert casts.count(["x", "fp16"]) == 1
    assert len(casts) == len({tuple(cast) for cast in casts})


def test_rewriting_again_changes_nothing() -> None:
    main, _ = built(conv)
    rewrite(main, rules())
    text = str(main)
    rewrite(main, rules())
    assert str(main) == text


def test_a_later_rewrite_reads_casts_that_are_there() -> None:
    main, _ = built(mlp)
    rewrite(main, rules())
    with fluid.program_guard(main, fluid.Program()), fluid.unique_name.guard("more"):
        layers.fc(main.global_block().var("x"), 5)
    rewrite(main, rules())
    assert casts_of(main).count(["x", "fp16"]) == 1


def test_a_variable_written_twice_keeps_its_type_and_is_cast_twice() -> None:
    with own_programs() as (main, _):
        x = fluid.data("x", [2, 3])
        weight = fluid.data("w", [3, 3])
        first = layers.matmul(x, weight)
        one = layers.matmul(first, weight)
        main.global_block().append_op("relu", {"X": one}, {"Out": first})
        other = layers.matmul(first, weight)
    rewrite(main, rules())
    assert first.dtype == VarType.FP32 and one.dtype == other.dtype == VarType.FP16
    assert casts_of(main).count([first.name, "fp16"]) == 2
    feed = {
        "x": np.eye(2, 3, dtype="float32"),
        "w": np.arange(-4, 5, dtype="float32").reshape(3, 3),
    }
    results = fluid.Executor(fluid.CPUPlace()).run(main, feed, [one, other])
    expected = feed["x"] @ feed["w"] @ feed["w"]
    np.testing.assert_array_equal(results[0], expected)
    np.testing.assert_array_equal(results[1], np.maximum(expected, 0) @ feed["w"])


def test_a_users_cast_says_what_it_reads() -> None:
    def net() -> Any:
        return layers.cast(
            layers.cast(layers.fc(fluid.data("x", [None, 8]), 3), "int32"), "float32"
        )

    main, _ = built(net)
    rewrite(main, rules())
    (cast,) = (
        op for op in main.global_block().ops if op.type == "cast" and op.attrs["out_dtype"] == 2
    )
    assert cast.attrs["in_dtype"] == int(VarType.FP16)


def test_nothing_flows_back_into_data() -> None:
    main, loss = built(mlp)
    with fluid.program_guard(main, fluid.Program()):
        MixedPrecision(fluid.optimizer.SGD(0.1), rules(), Scaling()).minimize(loss)
    assert not main.global_block().has_var("x.cast_fp16@GRAD")


def test_gradients_of_both_types_are_checked_together() -> None:
    main, loss = built(conv)
    with fluid.program_guard(main, fluid.Program()):
        optimizer = fluid.optimizer.Adam(0.1)
        MixedPrecision(optimizer, rules(level="O2"), Scaling(8.0, True)).minimize(loss)
    block = main.global_block()
    of = {kind: [op for op in block.ops if op.type == kind]
          for kind in ("check_finite_and_unscale", "update_loss_scaling", "reduce_any", "adam")}  # fmt: skip
    assert len(of["check_finite_and_unscale"]) == len(of["update_loss_scaling"]) == 2
    (flag,) = of["reduce_any"][0].output("Out")
    assert all(op.input("FoundInfinite") == [flag] for op in of["update_loss_scaling"])
    assert all(op.input("SkipUpdate") == [flag] for op in of["adam"])
    assert [op.attrs["stop_update"] for op in of["update_loss_scaling"]] == [False, True]
    assert not any(
        can_lower(node) for node in from_program(main, ["x", "y"]).nodes if node.op == "adam"
    )
    plain, loss = built(mlp)  # the optimizer itself is as it was
    with fluid.program_guard(plain, fluid.Program()):
        optimizer.minimize(loss)
    assert not any(op.input("SkipUpdate") for op in plain.global_block().ops if op.type == "adam")


def test_gradients_of_casts_are_casts_back_and_meet_in_low_precision() -> None:
    main, loss = built(mlp)
    with fluid.program_guard(main, fluid.Program()):
        mixed = MixedPrecision(fluid.optimizer.SGD(0.1), rules(), Scaling(8.0))
        _, pairs = mixed.minimize(loss)
    block = main.global_block()
    for parameter, grad in pairs:
        assert (parameter.dtype, grad.dtype) == (VarType.FP32, VarType.FP32)
        (marked,) = (
            op
            for op in block.ops
            if op.role == 1 and parameter.name in (op.attrs["op_role_var"] or ())
        )
        low = dict(zip(*[iter(marked.attrs["op_role_var"])] * 2, strict=True))[parameter.name]
        assert word(block, low) == "fp16"
    roles = [op.role & 3 for op in block.ops]
    assert roles == sorted(roles)  # forward, backward, optimizer


def test_the_guard_bounds_what_is_low() -> None:
    def net() -> Any:
        outside = layers.fc(fluid.data("x", [None, 8]), 8, name="outside")
        with fp16_guard():
            inside = layers.fc(outside, 8, name="inside")
        return layers.fc(inside, 3, name="behind")

    main, _ = built(net)
    lowered = rewrite(main, rules(level="O2", guard=True))
    assert lowered == {"inside.w_0", "inside.b_0"}
    block = main.global_block()
    types = {op.output("Out")[0].split(".")[0]: word(block, op.output("Out")[0])
            for op in block.ops if op.type == "mul"}  # fmt: skip
    assert types == {"outside": "fp32", "inside": "fp16", "behind": "fp32"}


def test_parameters_of_norms_stay_in_float32() -> None:
    def net() -> Any:
        hidden = layers.layer_norm(layers.fc(fluid.data("x", [None, 8]), 8), name="norm")
        return layers.fc(hidden, 3)

    main, _ = built(net)
    lowered = rewrite(main, rules(level="O2"))
    wide = {p.name for p in main.all_parameters()} - lowered
    assert wide == {"norm.w_0", "norm.b_0"}


def test_named_ops_and_variables_are_kept() -> None:
    main, _ = built(mlp)
    lists = AutoMixedPrecisionLists({"softmax"}, {"relu"}, {"fc_1.w_0"})
    assert "softmax" in lists.white_list and "softmax" not in lists.black_list
    assert "relu" in lists.black_list and "relu" not in lists.gray_list
    lowered = rewrite(main, Rules(lists, level="O2"))
    types = {op.type: word(main.global_block(), op.output_arg_names[0])
            for op in main.global_block().ops if op.type != "cast"}  # fmt: skip
    assert types["relu"] == "fp32" and types["softmax_with_cross_entropy"] == "fp16"
    assert "fc_1.w_0" not in lowered and "fc_0.w_0" in lowered


def test_an_op_in_no_list_follows_its_operands_when_promoted() -> None:
    def net() -> Any:
        return layers.sin(layers.fc(fluid.data("x", [None, 8]), 3, bias_attr=False))

    for promote, expected in ((True, "fp16"), (False, "fp32")):
        main, _ = built(net)
        rewrite(main, rules(promote=promote))
        (sine,) = (op for op in main.global_block().ops if op.type == "sin")
        assert word(main.global_block(), sine.output("Out")[0]) == expected


def test_a_test_clone_is_low_and_has_no_updates() -> None:
    main, loss = built(conv)
    with fluid.program_guard(main, fluid.Program()):
        MixedPrecision(fluid.optimizer.SGD(0.1), rules(), Scaling(8.0, True)).minimize(loss)
    test = main.clone(for_test=True)
    assert {op.type for op in test.global_block().ops} >= {"cast", "conv2d"}
    assert not any("loss_scaling" in op.type or op.role & 3 for op in test.global_block().ops)


def test_a_program_with_gradients_is_refused() -> None:
    main, loss = built(mlp)
    with fluid.program_guard(main, fluid.Program()):
        fluid.optimizer.SGD(0.1).minimize(loss)
    with pytest.raises(InvalidState, match=r"but its gradient exists. Decorate the optimizer"):
        rewrite(main, rules())


def test_lists_are_checked() -> None:
    with pytest.raises(InvalidValue, match="relu in custom_white_list and custom_black_list"):
        AutoMixedPrecisionLists({"relu"}, {"relu", "exp"})
    with pytest.raises(InvalidType, match="custom_black_list must be a set or list of names"):
        AutoMixedPrecisionLists(custom_black_list="relu")
    with pytest.raises(InvalidType, match="custom_white_list must be a set or list of names"):
        AutoMixedPrecisionLists(custom_white_list={1})  # type: ignore[arg-type]
    with pytest.raises(InvalidValue, match="dtype must be 'float16' or 'bfloat16', got 'int8'"):
        AutoMixedPrecisionLists(dtype="int8")


def test_names_in_lists_that_change_nothing_are_warned_of() -> None:
    with pytest.warns(
        UserWarning, match="'matmull' in the lists is no op.*mean 'matmul'?"
    ) as caught:
        AutoMixedPrecisionLists({"matmull"}, {"lookup_table_dequant"})
    assert len(caught) == 1 and caught[0].filename == __file__  # Paddle has the other
    main, loss = built(mlp)
    with (
        pytest.warns(
            UserWarning, match=r"'fc_0\.w_1', which is no variable.*'fc_0\.w_0'"
        ) as caught,
        fluid.program_guard(main, fluid.Program()),
    ):
        lists = AutoMixedPrecisionLists(custom_black_varnames={"fc_0.w_1", "fc_1.w_0"})
        MixedPrecision(fluid.optimizer.SGD(0.1), Rules(lists), Scaling(8.0, True)).minimize(loss)
    assert len(caught) == 1 and caught[0].filename == __file__
