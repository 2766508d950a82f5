"""Errors that the table of Paddle's errors does not hold: seeds, pruning, ops that fail, strategies."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import rowlock.fluid as fluid
from rowlock.strategies.build import BuildStrategy
from rowlock.strategies.errors import EnforceNotMet
from tests.contract.nets import Net, feed
from tests.programs import executor_after, on_places, own_programs


def without(name: str) -> dict[str, Any]:
    return {key: array for key, array in feed(4).items() if key != name}


LIST = [feed(2), feed(2)]


def test_customized_scale_must_be_fed(gang: str) -> None:
    net = Net()
    scale = BuildStrategy.GradientScaleStrategy.Customized
    program = net.compiled(2, build={"gradient_scale_strategy": scale})
    name = net.loss.name + "@GRAD"
    with pytest.raises(EnforceNotMet, match=f"{name}.* is not fed"):
        net.run(program, feed(4), [])
    with pytest.raises(
        ValueError, match=r"got shape \[1\] for 2 places. Feed 2 row\(s\), one value"
    ):
        net.run(program, {**feed(4), name: np.ones(1, "float32")}, [])
    with pytest.raises(EnforceNotMet, match="mean_grad"):
        net.run(program, [{**part, name: np.ones(3, "float32")} for part in LIST], [])
    net.run(program, {**feed(4), name: np.ones(2, "float32")}, [])
    net.run(program, [{**part, name: np.ones(1, "float32")} for part in LIST], [])


def test_startup_was_not_run(gang: str) -> None:
    net = Net()
    net.scope = fluid.Scope()
    program = net.compiled(2)
    for error in (EnforceNotMet, RuntimeError):
        with pytest.raises(error, match=r"hold no value in the scope.*Run the startup program"):
            net.run(program, feed(4), [])
    net.run(net.startup)
    net.run(program, feed(4), [])


def test_an_operator_that_fails_is_named(gang: str) -> None:
    scope = fluid.Scope()
    with own_programs() as (main, startup):
        ids = fluid.data("ids", [None, 1], "int64")
        out = fluid.layers.embedding(ids, [5, 2])
    exe = executor_after(startup, scope)
    program = on_places(main, 2)
    bad = {"ids": np.array([[1], [2], [3], [9]])}
    with pytest.raises(
        RuntimeError, match=r"replica 1: operator lookup_table.* 9.*test_more_errors.py"
    ):
        exe.run(program, bad, [out], scope=scope)
    exe.run(program, {"ids": bad["ids"] % 5}, [out], scope=scope)


# -- plain executor -------------------------------------------------------------------------------


def test_plain_executor() -> None:
    net = Net()
    optimize = next(op for op in net.main.global_block().ops if op.type == "sgd")
    mean = next(op for op in net.main.global_block().ops if op.type == "mean")
    cases: list[tuple[type[Exception], str, dict[str, Any]]] = [
        (AssertionError, "takes one feed, got a list of 2", {"feed": LIST}),
        (TypeError, "feed must be a dict of arrays by variable name, got int", {"feed": 3}),
        (TypeError, "mean, which is not an optimize op", {"feed": feed(2), "fetch_list": [mean]}),
        (EnforceNotMet, "'x' .* is not fed", {}),
        (ValueError, "0 rows", {"feed": {name: array[:0] for name, array in feed(2).items()}}),
    ]
    for kind, message, call in cases:
        with pytest.raises(kind, match=message):
            net.run(net.main, **call)
    with pytest.raises(TypeError, match="takes a Program or CompiledProgram, got str"):
        net.exe.run("main")
    before = net.parameters()
    assert net.run(net.main, feed(4), [optimize]) == []  # what it needs is run, and it
    changed = [n for n, a in net.parameters().items() if not np.array_equal(a, before[n])]
    assert changed == [optimize.input("Param")[0]]
    pruned = net.run(net.main, without("y"), [net.prediction], use_prune=True)
    np.testing.assert_allclose(pruned[0], net.run(net.test, feed(4), [net.prediction])[0], 1e-6)
    net.exe.close()
    with pytest.raises(RuntimeError, match="this executor is closed"):
        net.run(net.main, feed(4))


@pytest.mark.parametrize(
    ("fields", "error", "message"),
    [
        ({"async_mode": True}, NotImplementedError, "async_mode=True"),
        (
            {"debug_graphviz_path": "/no/such/folder/g"},
            EnforceNotMet,
            "cannot open /no/such/folder",
        ),
    ],
)
def test_strategies_that_cannot_be_compiled(
    threads: None, fields: dict[str, Any], error: type[Exception], message: str
) -> None:
    net = Net()
    program = net.compiled(2, build=fields)
    for kind in (error, EnforceNotMet):
        with pytest.raises(kind, match=message):
            net.run(program, feed(4), [])
    net.run(net.compiled(2), feed(4), [])


def test_finalized_strategies_refuse_changes() -> None:
    build = BuildStrategy()
    names = [entry.type() for entry in build._finalize_strategy_and_create_passes().all_passes()]
    assert "all_reduce_mode_multi_devices_pass" in names and "fuse_bn_act_pass" not in names
    for field, value in (
        ("reduce_strategy", build.ReduceStrategy.Reduce),
        ("sync_batch_norm", True),
    ):
        with pytest.raises(
            EnforceNotMet, match=f"{field} cannot change: the strategy is finalized"
        ):
            setattr(build, field, value)
    build.fuse_all_reduce_ops = False  # as in Paddle, this one is free


def test_dropping_before_the_first_run() -> None:
    for program in (Net().compiled(1), fluid.ParallelExecutor(False, main_program=Net().test)):
        with pytest.raises(TypeError, match="nothing was run yet"):
            program.drop_local_exe_scopes()


def test_strategies_of_another_kind(threads: None) -> None:
    net = Net()
    with pytest.raises(TypeError, match="of type BuildStrategy, got int"):
        fluid.CompiledProgram(net.test, build_strategy=3)
    program = fluid.CompiledProgram(net.test)
    with pytest.raises(TypeError, match="of type BuildStrategy, got int"):
        program.with_data_parallel(build_strategy=3)
    with pytest.raises(TypeError, match="of type ExecutionStrategy, got BuildStrategy"):
        program.with_data_parallel(exec_strategy=BuildStrategy(), places=fluid.cpu_places(2))
    with pytest.raises(TypeError, match="scope must be a Scope, got int"):
        net.exe.run(net.test, feed(4), [], scope=3)
