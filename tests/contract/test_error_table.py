"""Every error that Paddle's users know: its type, what its message says, and that nothing breaks by it."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator
from contextlib import contextmanager, nullcontext
from typing import Any, NamedTuple

import numpy as np
import pytest

import rowlock
import rowlock.fluid as fluid
from rowlock.executor.device import place
from tests.conftest import lasting
from tests.programs import executor_after, on_places

EnforceNotMet = fluid.core.EnforceNotMet
PLACES = 2


@contextmanager
def refused(error: type[BaseException], *words: str) -> Iterator[None]:
    """Expect an error of this type and of the family, whose message holds the words in any order."""
    pattern = "(?s)" + "".join(f"(?=.*{re.escape(word)})" for word in words)
    with pytest.raises(error, match=pattern) as caught:
        yield
    assert isinstance(caught.value, EnforceNotMet)


class Net:
    """A regression from ``points`` to ``target``, initialised to constants, and an executor."""

    def __init__(self) -> None:
        self.main, self.startup = fluid.Program(), fluid.Program()
        with fluid.program_guard(self.main, self.startup):
            points = fluid.data("points", [None, 4])
            target = fluid.data("target", [None, 1])
            attr = fluid.ParamAttr(initializer=fluid.initializer.Constant(0.1))
            self.out = fluid.layers.fc(points, 3, param_attr=attr)
            self.turned = fluid.layers.transpose(self.out, [1, 0])
            guess = fluid.layers.fc(self.out, 1, param_attr=attr)
            self.loss = fluid.layers.mean(fluid.layers.square_error_cost(guess, target))
            self.test = self.main.clone(for_test=True)
            fluid.optimizer.SGD(0.01).minimize(self.loss)
        self.exe = fluid.Executor(fluid.CPUPlace())
        self.exe.run(self.startup)

    def feed(self, rows: int = 4, **other: Any) -> dict[str, Any]:
        points = np.arange(rows * 4, dtype="float32").reshape(rows, 4) / 16
        return {"points": points, "target": points[:, :1] + 1, **other}

    def parallel(self, places: int = PLACES, **settings: Any) -> fluid.CompiledProgram:
        settings.setdefault("loss", self.loss)
        return on_places(self.main, places, **settings)

    def works(self, program: Any, places: int = PLACES) -> None:
        """Run a good step, which must train."""
        before = weights()
        (loss,) = self.exe.run(program, self.feed(), [self.loss])
        assert loss.shape == (places,) and np.isfinite(loss).all()
        assert (weights() != before).any()


def weights() -> np.ndarray:
    return np.array(fluid.global_scope().find_var("fc_0.w_0").get_tensor())


@pytest.fixture(autouse=True)
def own_world() -> Iterator[None]:
    with fluid.scope_guard(fluid.Scope()), fluid.unique_name.guard():
        yield


@pytest.fixture(scope="module", params=["threads", "ray"])
def gang(request: pytest.FixtureRequest) -> Iterator[str]:
    if request.param == "ray":
        request.getfixturevalue("ray_cluster")
    with lasting(request.param):
        yield request.param


# -- what is fed and fetched ------------------------------------------------------------------------


class Case(NamedTuple):
    """One bad run. A fetch list of None is the loss."""

    error: type[BaseException]
    words: tuple[str, ...]
    feed: Callable[[Net], Any]
    fetch: Callable[[Net], Any] = lambda net: [net.loss]


ANYWHERE = {
    "unknown name": Case(
        ValueError, ("'point'", "Did you mean 'points'"), lambda n: n.feed(point=np.ones(4))
    ),
    "key not str": Case(
        TypeError, ("str",), lambda n: {n.main.global_block().var("points"): n.feed()["points"]}
    ),
    "Python list": Case(
        RuntimeError,
        ("points", "list", "numpy"),
        lambda n: n.feed(points=n.feed()["points"].tolist()),
    ),
    "None": Case(ValueError, ("points",), lambda n: n.feed(points=None)),
    "text": Case(ValueError, ("points",), lambda n: n.feed(points="ones")),
    "objects": Case(ValueError, ("points",), lambda n: n.feed(points=np.array([{}, {}]))),
    "shape": Case(
        ValueError,
        ("points", "[-1, 4]", ", 5]"),
        lambda n: n.feed(points=np.ones((4, 5), "float32")),
    ),
    "rank": Case(ValueError, ("points", "[-1, 4]"), lambda n: n.feed(points=np.ones(4, "float32"))),
    "dtype": Case(
        ValueError,
        ("points", "float32", "float64"),
        lambda n: n.feed(points=np.ones((4, 4), "float64")),
    ),
    "no rows": Case(EnforceNotMet, ("points", "0 row"), lambda n: n.feed(0)),
    "missing": Case(EnforceNotMet, ("target", "fed"), lambda n: {"points": n.feed()["points"]}),
    "nothing fed": Case(EnforceNotMet, ("points", "fed"), lambda n: None),
    "fetch unknown": Case(EnforceNotMet, ("fetch", "lost"), Net.feed, lambda n: ["lost"]),
    "fetch item": Case(TypeError, ("fetch_list", "3"), Net.feed, lambda n: [3]),
    "fetch operator": Case(
        TypeError, ("fetch_list",), Net.feed, lambda n: [n.main.global_block().ops[0]]
    ),
    "fetch no list": Case(AssertionError, ("fetch_list", "int"), Net.feed, lambda n: 3),
}

IN_PARALLEL = {
    "list too short": Case(ValueError, ("1", "2 places"), lambda n: [n.feed()]),
    "list too long": Case(ValueError, ("3", "2 places"), lambda n: [n.feed()] * 3),
    "list empty": Case(ValueError, ("0", "2 places"), lambda n: []),
    "list of no dicts": Case(TypeError, ("dict", "int"), lambda n: [n.feed(), 3]),
    "list of unlike dicts": Case(
        EnforceNotMet, ("place 1", "target"), lambda n: [n.feed(), {"points": n.feed()["points"]}]
    ),
    "a number": Case(ValueError, ("dict", "list", "int"), lambda n: 3),
    "an array": Case(ValueError, ("dict", "list", "ndarray"), lambda n: np.ones((4, 4))),
    "fewer rows than places": Case(
        EnforceNotMet, ("1 row", "2 places", "CPU_NUM"), lambda n: n.feed(1)
    ),
    "persistable": Case(
        EnforceNotMet,
        ("learning_rate_0", "[3]", "2 places"),
        lambda n: n.feed(learning_rate_0=np.ones(3, "float32")),
    ),
}


@pytest.mark.parametrize("name", [*ANYWHERE, *IN_PARALLEL])
def test_feeds_and_fetches_in_parallel(gang: str, name: str) -> None:
    case, net = {**ANYWHERE, **IN_PARALLEL}[name], Net()
    program = net.parallel()
    for _ in range(2):  # refused when it has not run yet, and when it has
        before = weights()
        with refused(case.error, *case.words):
            net.exe.run(program, case.feed(net), case.fetch(net))
        np.testing.assert_array_equal(weights(), before)
        net.works(program)


@pytest.mark.parametrize("compiled", [False, True])
@pytest.mark.parametrize("name", ANYWHERE)
def test_feeds_and_fetches_on_one_place(name: str, compiled: bool) -> None:
    case, net = ANYWHERE[name], Net()
    program = fluid.CompiledProgram(net.main) if compiled else net.main
    for _ in range(2):
        before = weights()
        with refused(case.error, *case.words):
            net.exe.run(program, case.feed(net), case.fetch(net))
        np.testing.assert_array_equal(weights(), before)
        net.works(program, 1)


def test_what_one_place_is_fed() -> None:
    net = Net()
    for feed in ([net.feed(), net.feed()], []):
        with refused(AssertionError, str(len(feed)), "data parallel"):
            net.exe.run(net.main, feed, [net.loss])
    for other in (3, "points", [3]):
        with refused(TypeError, "dict", "int" if other != "points" else "str"):
            net.exe.run(net.main, other, [net.loss])
    with refused(TypeError, "Program", "int"):
        net.exe.run(3)
    net.works(net.main, 1)
    compiled = fluid.CompiledProgram(net.main)
    with refused(ValueError, "2", "1 place"):
        net.exe.run(compiled, [net.feed(), net.feed()], [net.loss])
    net.works(compiled, 1)


def test_fetches_that_cannot_be_joined(gang: str) -> None:
    net = Net()
    program = net.parallel()
    with refused(EnforceNotMet, net.turned.name, "[3, 2]", "[3, 3]", "return_merged=False"):
        net.exe.run(program, net.feed(5), [net.turned])
    net.works(program)
    (parts,) = net.exe.run(program, net.feed(5), [net.turned], return_merged=False)
    assert [part.shape for part in parts] == [(3, 2), (3, 3)]


def test_a_forward_program_runs_on_as_many_places_as_there_are_rows(gang: str) -> None:
    net = Net()
    program = on_places(net.test, PLACES)
    feed = net.feed(1)
    out, loss = net.exe.run(program, feed, [net.out, net.loss])
    assert out.shape == (1, 3) and loss.shape == (1,)
    with refused(EnforceNotMet, "0 row"):
        net.exe.run(program, net.feed(0), [net.out])
    np.testing.assert_array_equal(net.exe.run(program, [feed], [net.out])[0], out)
    out, loss = net.exe.run(program, net.feed(), [net.out, net.loss])
    assert out.shape == (4, 3) and loss.shape == (2,)
    np.testing.assert_allclose(out[:1], net.exe.run(program, feed, [net.out])[0], rtol=1e-6)


def test_startup_not_run(gang: str) -> None:
    net = Net()
    with fluid.scope_guard(fluid.Scope()):
        program = net.parallel()
        for run in (net.main, program):
            with refused(EnforceNotMet, "fc_0.w_0", "startup"):
                net.exe.run(run, net.feed(), [net.loss])
        net.exe.run(net.startup)
        net.works(program)


def test_customized_scale_without_the_gradient(gang: str) -> None:
    net, build = Net(), fluid.BuildStrategy()
    build.gradient_scale_strategy = fluid.BuildStrategy.GradientScaleStrategy.Customized
    program, seed = net.parallel(build=build), net.loss.name + "@GRAD"
    for _ in range(2):
        with refused(EnforceNotMet, seed):
            net.exe.run(program, net.feed(), [net.loss])
        before = weights()
        net.exe.run(program, {**net.feed(), seed: np.ones(PLACES, "float32")}, [net.loss])
        assert (weights() != before).any()


# -- compiled programs and executors ----------------------------------------------------------------


def test_what_can_be_compiled() -> None:
    with refused(TypeError, "Program", "int"):
        fluid.CompiledProgram(3)
    net = Net()
    with refused(AssertionError, "with_data_parallel"):
        net.parallel().with_data_parallel(loss_name=net.loss.name)


def test_loss_name(gang: str) -> None:
    net = Net()
    for missing in (None, ""):
        with refused(AssertionError, "loss_name"):
            net.parallel(loss=missing)
    for other in (net.loss, 3):
        with refused(TypeError, "loss_name", "str", type(other).__name__):
            fluid.CompiledProgram(net.main).with_data_parallel(
                loss_name=other, places=fluid.cpu_places(PLACES)
            )
    net.works(net.parallel())


def test_a_wrong_loss_name_warns_and_trains_alike(gang: str) -> None:
    def train(name: str | None, warns: Any) -> np.ndarray:
        with fluid.scope_guard(fluid.Scope()), fluid.unique_name.guard():
            net = Net()
            with warns:
                program = net.parallel(loss=name or net.loss.name)
                losses = [net.exe.run(program, net.feed(), [net.loss])[0]]
            losses.append(net.exe.run(program, net.feed(), [net.loss])[0])
            return np.array(losses)

    right = train(None, nullcontext())
    wrong = train("nobody", pytest.warns(UserWarning, match="nobody"))
    np.testing.assert_array_equal(wrong, right)


def test_the_executors_place() -> None:
    with refused(TypeError, "'cpu'"):
        fluid.Executor("cpu")


@pytest.mark.cpu
def test_places(monkeypatch: pytest.MonkeyPatch) -> None:
    net = Net()
    with refused(AssertionError, "no places", "CPU_NUM"):
        net.parallel(0)
    with refused(TypeError, "device_count", "'2'"):
        fluid.cpu_places("2")  # type: ignore[arg-type]
    with refused(EnforceNotMet, "'cpu'"):
        on_places(net.test, ["cpu"])
    monkeypatch.setenv("CPU_NUM", "x")
    with refused(ValueError, "CPU_NUM", "'x'"):
        fluid.cpu_places()
    with refused(ValueError, "CPU_NUM", "'x'"):
        fluid.ParallelExecutor(False, main_program=net.test)
    monkeypatch.setenv("CPU_NUM", "0")
    assert fluid.cpu_places() == []
    with refused(AssertionError, "no places"):
        fluid.ParallelExecutor(False, main_program=net.test)
    with rowlock.cluster(launcher="threads"), refused(AssertionError, "no places"):
        net.exe.run(fluid.CompiledProgram(net.test).with_data_parallel(), net.feed(), [net.loss])


@pytest.mark.cpu
def test_places_of_another_kind() -> None:
    net = Net()
    with refused(AssertionError):  # on a machine without GPUs the place itself is refused
        places = [fluid.CUDAPlace(0)]
        program = on_places(net.test, places)
        net.exe.run(program, net.feed(), [net.loss])


@pytest.mark.cpu
@pytest.mark.skipif(fluid.core.is_compiled_with_cuda(), reason="here are GPUs")
def test_no_gpu(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(place, "gpu_count", lambda: 0)  # another test's Ray may simulate some
    net = Net()
    for ask in (fluid.cuda_places, lambda: fluid.ParallelExecutor(True, main_program=net.test)):
        with refused(AssertionError, "GPU"):
            ask()
        with pytest.raises(AssertionError) as caught:
            ask()
        assert "\n" not in str(caught.value) and len(str(caught.value)) < 160


def test_another_scope(gang: str) -> None:
    net = Net()
    program, other = net.parallel(), fluid.Scope()
    net.works(program)
    net.exe.run(net.startup, scope=other)
    with refused(ValueError, "scope"):
        net.exe.run(program, net.feed(), [net.loss], scope=other)
    net.works(program)


def test_sharing(gang: str) -> None:
    net = Net()
    train, alone = net.parallel(), fluid.CompiledProgram(net.main)

    def test(source: Any, places: int = PLACES) -> fluid.CompiledProgram:
        return on_places(net.test, places, share_vars_from=source)

    with refused(TypeError, "share_vars_from", "CompiledProgram"):
        test(net.main)
    sharing = test(train)
    with refused(ValueError, "share_vars_from", "not run"):
        net.exe.run(sharing, net.feed(), [net.loss])
    net.works(train)
    assert net.exe.run(sharing, net.feed(), [net.loss])[0].shape == (PLACES,)
    net.exe.run(alone, net.feed(3), [net.loss])
    with refused(ValueError, "share_vars_from", "data parallel"):
        net.exe.run(test(alone), net.feed(), [net.loss])
    with refused(EnforceNotMet, "share_vars_from", "2 places", "1"):
        net.exe.run(test(train, 1), net.feed(), [net.loss])
    net.works(train)
    assert net.exe.run(sharing, net.feed(), [net.loss])[0].shape == (PLACES,)


def test_parallel_executor(gang: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("CPU_NUM", str(PLACES))
    net = Net()
    train = fluid.ParallelExecutor(False, loss_name=net.loss.name, main_program=net.main)
    for other in (net.main, fluid.CompiledProgram(net.main), "train"):
        with refused(TypeError, "share_vars_from", "ParallelExecutor", type(other).__name__):
            fluid.ParallelExecutor(False, main_program=net.test, share_vars_from=other)
    with refused(AssertionError, "loss_name"):
        fluid.ParallelExecutor(False, main_program=net.main)
    with refused(TypeError, "run"):
        train.drop_local_exe_scopes()
    with pytest.raises(TypeError, match="fetch_list"):
        train.run(feed=net.feed())
    with refused(ValueError, "1", "2 places"):
        train.run([net.loss.name], feed=[net.feed()])
    assert train.run([net.loss.name], feed=net.feed())[0].shape == (PLACES,)
    train.drop_local_exe_scopes()
    assert train.run([net.loss.name], feed=net.feed())[0].shape == (PLACES,)


def test_a_closed_executor(gang: str) -> None:
    net = Net()
    program = net.parallel()
    net.works(program)
    net.exe.close()
    for run in (net.main, program):
        with refused(RuntimeError, "closed"):
            net.exe.run(run, net.feed(), [net.loss])
    net.exe = fluid.Executor(fluid.CPUPlace())
    net.works(program)
    net.works(net.main, 1)


# -- strategies -------------------------------------------------------------------------------------

FLAGS = [
    "enable_sequential_execution", "remove_unnecessary_lock", "fuse_elewise_add_act_ops", "fuse_bn_act_ops",
    "fuse_relu_depthwise_conv", "enable_auto_fusion", "fuse_broadcast_ops", "fuse_all_optimizer_ops",
    "sync_batch_norm",
]  # fmt: skip
FROZEN = [*FLAGS, "reduce_strategy", "gradient_scale_strategy", "debug_graphviz_path"]
FREE = [
    "fuse_all_reduce_ops", "enable_inplace", "use_hierarchical_allreduce", "cache_runtime_context",
    "enable_backward_optimizer_op_deps", "is_distribution", "async_mode",
]  # fmt: skip


@pytest.mark.parametrize("field", [*FLAGS, *FREE])
def test_flags_of_the_build_strategy(field: str) -> None:
    strategy = fluid.BuildStrategy()
    for value in (True, False, 1, 0, None):
        setattr(strategy, field, value)
        assert getattr(strategy, field) is bool(value)
    for value in ("yes", "", [True]):
        with refused(TypeError, field, repr(value)):
            setattr(strategy, field, value)


@pytest.mark.parametrize(
    ("field", "value"),
    [
        ("reduce_strategy", 1),
        ("reduce_strategy", "Reduce"),
        ("reduce_strategy", None),
        ("gradient_scale_strategy", 1),
        ("gradient_scale_strategy", "One"),
        ("debug_graphviz_path", 3),
        ("debug_graphviz_path", None),
        ("memory_optimize", "on"),
        ("memory_optimize", 1),
        ("memory_optimize", 2),
        ("num_trainers", 1.5),
        ("trainer_id", "0"),
        ("trainers_endpoints", [6174]),
        ("mkldnn_enabled_op_types", ["conv2d"]),
        ("mkldnn_enabled_op_types", {1}),
    ],
)
def test_other_fields_of_the_build_strategy(field: str, value: Any) -> None:
    with refused(EnforceNotMet if field == "memory_optimize" else TypeError, field):
        setattr(fluid.BuildStrategy(), field, value)


def test_memory_optimize_has_three_states() -> None:
    strategy = fluid.BuildStrategy()
    for value in (True, False, None):
        strategy.memory_optimize = value
        assert strategy.memory_optimize is value


def test_a_finalized_build_strategy() -> None:
    strategy = fluid.BuildStrategy()
    strategy._finalize_strategy_and_create_passes()
    for field in FROZEN:
        with refused(EnforceNotMet, field, "finalized"):
            setattr(strategy, field, getattr(strategy, field))
    for field in [*FREE, "memory_optimize", "num_trainers"]:
        setattr(strategy, field, 1 if field == "num_trainers" else True)


def test_running_finalizes_nothing(gang: str) -> None:
    net, build = Net(), fluid.BuildStrategy()
    program = net.parallel(build=build)
    net.works(program)
    for field in FROZEN:
        setattr(build, field, getattr(build, field))
    net.works(program)


@pytest.mark.parametrize(
    "field", ["num_threads", "num_iteration_per_drop_scope", "num_iteration_per_run"]
)
@pytest.mark.parametrize("value", [-1, 1.5, 2.0, None, "4"])
def test_counts_of_the_execution_strategy(field: str, value: Any) -> None:
    with refused(TypeError, field, repr(value)):
        setattr(fluid.ExecutionStrategy(), field, value)


@pytest.mark.parametrize(
    ("kind", "asked", "nearest"),
    [
        (fluid.BuildStrategy, "fuse_all_reduce_op", "fuse_all_reduce_ops"),
        (fluid.ExecutionStrategy, "num_thread", "num_threads"),
    ],
)
def test_fields_that_do_not_exist(kind: Any, asked: str, nearest: str) -> None:
    with refused(AttributeError, repr(asked), f"Did you mean {nearest!r}"):
        setattr(kind(), asked, 1)
    with refused(AttributeError, repr(asked), f"Did you mean {nearest!r}"):
        getattr(kind(), asked)


def test_a_graph_that_cannot_be_drawn(gang: str) -> None:
    net, build = Net(), fluid.BuildStrategy()
    build.debug_graphviz_path = "/no/such/folder/graph"
    with refused(EnforceNotMet, "/no/such/folder"):
        net.exe.run(net.parallel(build=build), net.feed(), [net.loss])
    net.works(net.parallel())


@pytest.mark.parametrize(
    ("error", "words", "count", "trainer", "endpoints"),
    [
        (AssertionError, ("3", "2"), 3, 0, 2),
        (EnforceNotMet, ("trainer_id", "-1"), 2, -1, 2),
        (EnforceNotMet, ("trainer_id", "2"), 2, 2, 2),
    ],
)
def test_trainers(
    gang: str, error: type, words: tuple[str, ...], count: int, trainer: int, endpoints: int
) -> None:
    net, build = Net(), fluid.BuildStrategy()
    build.num_trainers, build.trainer_id = count, trainer
    addresses = [f"127.0.0.1:{6174 + i}" for i in range(endpoints)]
    build.trainers_endpoints = net.main._trainers_endpoints = addresses
    with refused(error, *words):
        net.exe.run(net.parallel(build=build), net.feed(), [net.loss])
    net.main._trainers_endpoints = []
    net.works(net.parallel())


# -- building programs ------------------------------------------------------------------------------


class Built:
    """A program to which bad things are added: ``x`` [-1, 3], its sum ``each`` [-1, 1], ``loss`` [1]."""

    def __init__(self) -> None:
        self.x = fluid.data("x", [None, 3])
        self.each = fluid.layers.fc(self.x, 1)
        self.loss = fluid.layers.mean(self.each)
        self.block = self.loss.block
        self.program = self.block.program

    def op(self, type: Any, inputs: Any = None, outputs: Any = None) -> None:
        self.block.append_op(type=type, inputs=inputs, outputs=outputs)


optimizer, backward, gradients = fluid.optimizer, fluid.append_backward, fluid.gradients
BUILDING: dict[str, tuple[type[BaseException], tuple[str, ...], Callable[[Built], Any]]] = {
    "rate int": (TypeError, ("learning_rate", "1"), lambda b: optimizer.SGD(1)),
    "rate str": (TypeError, ("learning_rate", "0.1"), lambda b: optimizer.Adam("0.1")),
    "clip": (TypeError, ("grad_clip", "int"), lambda b: optimizer.SGD(0.1, grad_clip=3)),
    "minimize": (AssertionError, ("loss", "Variable"), lambda b: optimizer.SGD(0.1).minimize("x")),
    "minimize shape": (
        AssertionError, ("[1]", "[-1, 1]"), lambda b: optimizer.SGD(0.1).minimize(b.each)
    ),
    "backward shape": (
        AssertionError, ("[1]", "[-1, 1]"), lambda b: optimizer.SGD(0.1).backward(b.each)
    ),
    "backward loss": (TypeError, ("loss", "Variable", "str"), lambda b: backward("loss")),
    "parameter_list": (TypeError, ("parameter_list",), lambda b: backward(b.loss, "fc_0.w_0")),
    "parameter": (TypeError, ("parameter_list", "3"), lambda b: backward(b.loss, [3])),
    "callbacks": (
        TypeError, ("callbacks",), lambda b: backward(b.loss, callbacks=lambda block, context: None)
    ),
    "callback": (ValueError, ("callback",), lambda b: backward(b.loss, callbacks=[3])),
    "no_grad_set": (TypeError, ("no_grad_set",), lambda b: backward(b.loss, no_grad_set="x")),
    "no_grad": (TypeError, ("no_grad_set", "3"), lambda b: backward(b.loss, no_grad_set={3})),
    "targets": (TypeError, ("targets", "Variable"), lambda b: gradients("loss", b.x)),
    "inputs": (TypeError, ("inputs", "3"), lambda b: gradients(b.loss, [3])),
    "target gradients": (
        ValueError, ("2", "1", "target"), lambda b: gradients(b.loss, b.x, [None, None])
    ),
    "target gradient shape": (
        ValueError, ("(-1, 3)", "(-1, 1)"), lambda b: gradients(b.each, b.x, [b.x])
    ),
    "target gradient type": (TypeError, ("3",), lambda b: gradients(b.each, b.x, [3])),
    "seed": (ValueError, ("random_seed", "'1'"), lambda b: setattr(b.program, "random_seed", "1")),
    "guard main": (
        TypeError, ("main_program", "int"), lambda b: fluid.program_guard(3).__enter__()
    ),
    "guard startup": (
        TypeError,
        ("startup_program", "int"),
        lambda b: fluid.program_guard(fluid.Program(), 3).__enter__(),
    ),
    "op none": (ValueError, ("type", "None"), lambda b: b.op(None)),
    "op unknown": (ValueError, ("'rleu'", "Did you mean"), lambda b: b.op("rleu")),
    "op input": (
        AssertionError, ("elementwise_add", "'Y'"),
        lambda b: b.op("elementwise_add", {"X": b.x}, {"Out": b.x}),
    ),
    "op output": (ValueError, ("relu", "Out"), lambda b: b.op("relu", {"X": b.x}, {})),
    "op inputs": (
        ValueError, ("relu", "'X'", "2"), lambda b: b.op("relu", {"X": [b.x, b.x]}, {"Out": b.x})
    ),
    "op argument": (
        TypeError, ("relu", "'X'", "3"), lambda b: b.op("relu", {"X": [3]}, {"Out": b.x})
    ),
    "variable again": (
        ValueError, ("'x'", "(-1, 3)", "(3,)"),
        lambda b: b.block.create_var(name="x", shape=[3], dtype="float32"),
    ),
    "variable missing": (ValueError, ("'lost'",), lambda b: b.block.var("lost")),
    "variable name": (TypeError, ("str", "int"), lambda b: b.block.var(3)),
    "data name": (TypeError, ("name", "3"), lambda b: fluid.data(3, [1])),
    "data shape": (TypeError, ("shape", "3"), lambda b: fluid.data("y", 3)),
    "parameter none": (
        ValueError, ("None",), lambda b: b.block.create_parameter(shape=None, dtype="float32")
    ),
    "parameter empty": (
        ValueError, ("at least one",), lambda b: b.block.create_parameter(shape=[], dtype="float32")
    ),
    "parameter unknown": (
        ValueError, ("-1", "not negative"),
        lambda b: b.block.create_parameter(shape=[2, -1], dtype="float32"),
    ),
    "parameter dtype": (
        TypeError, ("int64", "initializer"), lambda b: fluid.layers.create_parameter([3], "int64")
    ),
}  # fmt: skip


@pytest.mark.parametrize("name", BUILDING)
def test_building(name: str) -> None:
    error, words, wrong = BUILDING[name]
    main, startup = fluid.Program(), fluid.Program()
    with fluid.program_guard(main, startup):
        model = Built()
        with refused(error, *words):
            wrong(model)
        assert fluid.default_main_program() is main
        assert fluid.default_startup_program() is startup
        optimizer.SGD(0.1).minimize(model.loss)  # what was refused left nothing behind
    exe = executor_after(startup)
    (loss,) = exe.run(main, {"x": np.ones((2, 3), "float32")}, [model.loss])
    assert np.isfinite(loss).all()
