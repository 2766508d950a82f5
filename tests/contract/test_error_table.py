"""Errors of parallel programs: their types as Paddle's documents name them, and what their messages say.

After each error on a gang the same program runs a good step: nothing hangs and nothing is left broken.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

import rowlock.fluid as fluid
from rowlock.strategies.build import BuildStrategy
from rowlock.strategies.errors import EnforceNotMet
from rowlock.strategies.execution import ExecutionStrategy
from tests.contract.nets import OPTIMIZERS, Net, feed


def without(name: str) -> dict[str, Any]:
    return {key: array for key, array in feed(4).items() if key != name}


Call = tuple[type[Exception], str, Callable[[], dict[str, Any]]]
LIST = [feed(2), feed(2)]
RUNS: dict[str, Call] = {
    "list feed shorter": (ValueError, "1 elements for 2 places", lambda: {"feed": LIST[:1]}),
    "list feed longer": (ValueError, "3 elements for 2 places", lambda: {"feed": LIST + LIST[:1]}),
    "list feed of others": (TypeError, "must be a dict, got int", lambda: {"feed": [LIST[0], 3]}),
    "list feed of other names": (
        ValueError,
        r"place 1 is fed \['x'\], place 0 \['x', 'y'\]",
        lambda: {"feed": [LIST[0], {"x": LIST[1]["x"]}]},
    ),
    "feed of another type": (ValueError, "a dict or a list of dicts, got int", lambda: {"feed": 3}),
    "unknown feed": (
        ValueError,
        "feed 'xs': the program has no such variable. Did you mean 'x'",
        lambda: {"feed": {**feed(4), "xs": np.ones(4)}},
    ),
    "feed key no name": (TypeError, "names .str., got int", lambda: {"feed": {3: np.ones(4)}}),
    "too few rows": (
        ValueError,
        r"1 row\(s\) cannot be split over 2 places.*CPU_NUM",
        lambda: {"feed": feed(1)},
    ),
    "no rows": (
        ValueError,
        "no rows",
        lambda: {"feed": {name: array[:0] for name, array in feed(2).items()}},
    ),
    "a place without rows": (
        ValueError,
        r"place 1 gets no rows \(rows by place: \[2, 0\]\)",
        lambda: {"feed": [LIST[0], {name: array[:0] for name, array in LIST[1].items()}]},
    ),
    "persistable neither one nor each": (
        ValueError,
        r"'learning_rate_0': got shape \[3\] for 2 places. Feed one value of shape \[1\], or 2 row",
        lambda: {"feed": {**feed(4), "learning_rate_0": np.zeros(3, "float32")}},
    ),
    "shape": (
        ValueError,
        r"'x': its declaration says shape \[-1, 4\], got \[2, 5\]. Declared at .*nets.py:\d+",
        lambda: {"feed": {**feed(4), "x": np.ones((4, 5), "float32")}},
    ),
    "dtype": (
        ValueError,
        r"'x': its declaration says dtype float32, got float64. Convert it with .astype\('float32'\)",
        lambda: {"feed": {**feed(4), "x": np.ones((4, 4))}},
    ),
    "rows that differ": (
        ValueError,
        r"elementwise_sub.*do not broadcast.*Built at .*nets.py",
        lambda: {"feed": {**feed(4), "y": feed(6)["y"]}},
    ),
    "Python list": (
        RuntimeError,
        "'y': got a Python list. Feed a numpy array",
        lambda: {"feed": {**feed(4), "y": [[1.0]] * 4}},
    ),
    "text": (RuntimeError, "'y': got a Python str", lambda: {"feed": {**feed(4), "y": "abcd"}}),
    "objects": (
        RuntimeError,
        "'y': an array of object cannot be fed",
        lambda: {"feed": {**feed(4), "y": np.array([[None]] * 4)}},
    ),
    "missing feed": (
        EnforceNotMet,
        r"'y' .* is not fed: elementwise_sub \(built at .*nets.py:\d+.*Fed: 'x'",
        lambda: {"feed": without("y")},
    ),
    "nothing fed": (EnforceNotMet, "'x' .* is not fed", lambda: {"feed": None}),
    "unknown fetch": (
        EnforceNotMet,
        "cannot fetch 'los': the program has no such variable",
        lambda: {"feed": feed(4), "fetch_list": ["los"]},
    ),
    "fetch of another type": (
        TypeError,
        "variables or their names, got 3",
        lambda: {"feed": feed(4), "fetch_list": [3]},
    ),
    "fetch list of another type": (
        AssertionError,
        "fetch_list must be a list of variables, got int",
        lambda: {"feed": feed(4), "fetch_list": 3},
    ),
}


@pytest.mark.parametrize("case", RUNS)
def test_a_run_that_cannot_be(gang: str, case: str) -> None:
    kind, message, call = RUNS[case]
    net = Net()
    program = net.compiled(2)
    for error in (kind, EnforceNotMet):
        with pytest.raises(error, match=message):
            net.run(program, **call())
    (loss,) = net.run(program, feed(4), [net.loss])
    assert np.isfinite(loss).all()


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
    main, startup, scope = fluid.Program(), fluid.Program(), fluid.Scope()
    with fluid.program_guard(main, startup), fluid.unique_name.guard():
        ids = fluid.data("ids", [None, 1], "int64")
        out = fluid.layers.embedding(ids, [5, 2])
    exe = fluid.Executor()
    exe.run(startup, scope=scope)
    program = fluid.CompiledProgram(main).with_data_parallel(places=fluid.cpu_places(2))
    bad = {"ids": np.array([[1], [2], [3], [9]])}
    with pytest.raises(
        RuntimeError, match=r"replica 1: operator lookup_table.* 9.*test_error_table.py"
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
        (ValueError, "no rows", {"feed": {name: array[:0] for name, array in feed(2).items()}}),
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


# -- making compiled programs ---------------------------------------------------------------------


def with_data_parallel(**settings: Any) -> Callable[[], Any]:
    return lambda: fluid.CompiledProgram(Net().main).with_data_parallel(**settings)


MAKING: dict[str, tuple[type[Exception], str, Callable[[], Any]]] = {
    "no program": (TypeError, "Program or a Graph, got int", lambda: fluid.CompiledProgram(3)),
    "no loss name": (AssertionError, "loss_name says which loss", with_data_parallel()),
    "empty loss name": (AssertionError, "loss_name", with_data_parallel(loss_name="")),
    "loss name no text": (TypeError, "must be a str, got int", with_data_parallel(loss_name=3)),
    "no places": (
        AssertionError,
        "the place list is empty",
        with_data_parallel(loss_name="mean_0.tmp_0", places=[]),
    ),
    "places of something": (
        ValueError,
        "places must be a place such as CPUPlace",
        with_data_parallel(loss_name="mean_0.tmp_0", places=["cpu"]),
    ),
    "twice": (
        AssertionError,
        "called before",
        lambda: Net().compiled(2).with_data_parallel(loss_name="mean_0.tmp_0"),
    ),
    "share with something": (
        TypeError,
        "share_vars_from must be a CompiledProgram, got str",
        with_data_parallel(loss_name="mean_0.tmp_0", share_vars_from="train"),
    ),
    "executor shares with something": (
        TypeError,
        "share_vars_from must be a ParallelExecutor, got CompiledProgram",
        lambda: fluid.ParallelExecutor(
            False, main_program=Net().test, share_vars_from=Net().compiled(1)
        ),
    ),
    "GPU": (AssertionError, "GPU", lambda: fluid.ParallelExecutor(True, main_program=Net().test)),
    "GPU places": (AssertionError, "no GPU here", fluid.cuda_places),
    "unknown field": (
        AttributeError,
        "no field 'fuse_all_reduce'. Did you mean 'fuse_all_reduce_ops'",
        lambda: BuildStrategy(fuse_all_reduce=True),
    ),
    "flag of text": (TypeError, "sync_batch_norm.*got 'yes'", lambda: BuildStrategy(sync_batch_norm="yes")),
    "memory_optimize": (EnforceNotMet, "memory_optimize", lambda: BuildStrategy(memory_optimize="on")),
    "enum by number": (TypeError, "reduce_strategy", lambda: BuildStrategy(reduce_strategy=1)),
    "negative": (TypeError, "num_threads", lambda: ExecutionStrategy(num_threads=-1)),
    "float": (
        TypeError,
        "num_iteration_per_drop_scope",
        lambda: ExecutionStrategy(num_iteration_per_drop_scope=1.5),
    ),
    "None": (TypeError, "num_iteration_per_run", lambda: ExecutionStrategy(num_iteration_per_run=None)),
}  # fmt: skip


@pytest.mark.parametrize("case", MAKING)
def test_what_cannot_be_made(case: str) -> None:
    kind, message, make = MAKING[case]
    for error in (kind, EnforceNotMet):
        with pytest.raises(error, match=message):
            make()


@pytest.mark.parametrize(
    ("fields", "error", "message"),
    [
        ({"trainer_id": -1}, EnforceNotMet, "trainer_id=-1 must be at least 0"),
        (
            {"num_trainers": 2, "trainer_id": 2, "trainers_endpoints": ["a:1", "b:2"]},
            EnforceNotMet,
            r"trainer_id=2 .* below the number of trainers \(2\)",
        ),
        (
            {"num_trainers": 3, "trainers_endpoints": ["a:1", "b:2"]},
            AssertionError,
            "num_trainers is 3, but there are 2 trainers_endpoints",
        ),
        ({"num_trainers": 2}, NotImplementedError, "num_trainers=2"),
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


# -- building programs ----------------------------------------------------------------------------


def built(make: Callable[[fluid.Variable], Any]) -> Callable[[], Any]:
    def call() -> Any:
        with fluid.program_guard(fluid.Program(), fluid.Program()), fluid.unique_name.guard():
            return make(fluid.layers.fc(fluid.data("x", [None, 4]), 2))

    return call


BUILDING: dict[str, tuple[type[Exception], str, Callable[[], Any]]] = {
    "rate no float": (TypeError, "learning_rate|learning rate", lambda: fluid.optimizer.SGD(1)),
    "loss no variable": (AssertionError, "loss", built(lambda x: OPTIMIZERS["sgd"]().minimize("x"))),
    "loss no scalar": (AssertionError, "loss", built(lambda x: OPTIMIZERS["sgd"]().minimize(x))),
    "gradients that do not match": (
        ValueError,
        "target_gradients",
        built(lambda x: fluid.gradients([x], [x], [x, x])),
    ),
    "seed no number": (ValueError, "random_seed", lambda: setattr(fluid.Program(), "random_seed", "a")),
    "guard of something": (TypeError, "program", lambda: fluid.program_guard("main").__enter__()),
    "shape without end": (
        ValueError,
        "shape|dimension|size",
        built(lambda x: fluid.layers.create_parameter([3, -1], "float32")),
    ),
}  # fmt: skip


@pytest.mark.parametrize("case", BUILDING)
def test_what_cannot_be_built(case: str) -> None:
    kind, message, make = BUILDING[case]
    for error in (kind, EnforceNotMet):
        with pytest.raises(error, match=message):
            make()
