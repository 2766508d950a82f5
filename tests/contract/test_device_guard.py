"""device_guard: ops on the host of a GPU compute what they do anywhere else; the plan holds the copies."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import numpy as np
import pytest

import rowlock
from rowlock import fluid, static
from rowlock.executor.device.gpus import local_gpus
from rowlock.executor.device.place import CPUPlace, CUDAPlace
from rowlock.executor.simulated.simulated import COUNT
from rowlock.strategies.build import BuildStrategy
from tests.conftest import draws, one_in
from tests.contract.conftest import need_gpus
from tests.programs import on_places, own_programs

Arrays = list[np.ndarray]
guard, layers = fluid.device_guard, fluid.layers
_STEPS = 4


pytestmark = pytest.mark.cuda


@pytest.fixture(autouse=True)
def gpus(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    if not local_gpus():
        monkeypatch.setenv(COUNT, "4")
    yield
    rowlock.shutdown()


class Net:
    """Programs built by a function from x [N, 4] and y [N, 1] to what is fetched, the loss first."""

    def __init__(self, build: Callable[..., list[Any]], optimizer: Any = None) -> None:
        self.scope = fluid.Scope()
        with own_programs(5) as (self.main, self.startup):
            x, y = fluid.data("x", [None, 4]), fluid.data("y", [None, 1])
            self.fetches = build(x, y)
            self.test = self.main.clone(for_test=True)
            (optimizer or fluid.optimizer.Momentum(0.1, 0.9)).minimize(self.fetches[0])

    def compiled(self, places: list[Any], build: BuildStrategy | None = None) -> Any:
        need_gpus(sum(isinstance(place, CUDAPlace) for place in places))
        self.exe = fluid.Executor(places[0])
        self.exe.run(self.startup, scope=self.scope)
        name = self.fetches[0].name
        program = fluid.CompiledProgram(self.main)
        return program.with_data_parallel(loss_name=name, places=places, build_strategy=build)

    def train(self, program: Any, rows: int = 8, steps: int = _STEPS) -> list[Arrays]:
        """Return what is fetched in each step, and all persistables at the end."""
        rng = np.random.default_rng(1)
        results = []
        for _ in range(steps):
            feed = {name: rng.random((rows, n), np.float32) for name, n in (("x", 4), ("y", 1))}
            results.append(
                self.exe.run(program, feed=feed, fetch_list=self.fetches, scope=self.scope)
            )
        return [*results, self.state()]

    def state(self) -> Arrays:
        names = [v.name for v in self.main.list_vars() if v.persistable]
        return [np.array(self.scope.find_var(n).get_tensor()) for n in sorted(names)]


def agree(one: list[Arrays], other: list[Arrays]) -> None:
    for step, expected in zip(one, other, strict=True):
        for a, b in zip(step, expected, strict=True):
            np.testing.assert_allclose(a, b, rtol=1e-5, atol=1e-6)


def both(
    net_of: Callable[..., list[Any]],
    count: int = 1,
    optimizer: Callable[[], Any] = lambda: None,
    **switches: Any,
) -> str:
    """Check that GPUs compute what CPUs do; return what explain() says of the GPUs."""
    results, text = [], ""
    for places in ([CPUPlace()] * count, [CUDAPlace(i) for i in range(count)]):
        with rowlock.cluster(launcher="threads"):
            net = Net(net_of, optimizer())
            program = net.compiled(places, BuildStrategy(**switches))
            results.append(net.train(program))
            text = str(program.explain())
            rowlock.shutdown()
    agree(results[1], results[0])
    return text


def cost(prediction: Any, y: Any) -> Any:
    return layers.mean(layers.square_error_cost(prediction, y))


def middle(x: Any, y: Any) -> list[Any]:
    """The second of three layers on the host."""
    hidden = layers.fc(x, 6, act="relu")
    with guard("cpu"):
        hidden = layers.dropout(layers.fc(hidden, 5, act="tanh"), 0.3)
    prediction = layers.fc(hidden, 1)
    return [cost(prediction, y), hidden, prediction]


@pytest.mark.parametrize("count", [2, pytest.param(1, marks=pytest.mark.slow)])
def test_a_layer_on_the_host_trains_like_anywhere_else(count: int) -> None:
    text = both(middle, count)
    assert "device_guard: 10 op(s) run on the host of each GPU" in text
    assert "fc_1.b_0, fc_1.b_0_velocity_0, fc_1.w_0, fc_1.w_0_velocity_0; there these" in text
    assert "value(s) are copied to the GPU" in text
    assert "on the host of each GPU: " in text.partition("memory of a step")[2]


@draws(3, 7)
@pytest.mark.parametrize("count", [1, 2])
def test_wherever_ops_are_placed_the_results_are_the_same(count: int, draws: int) -> None:
    expected, copies = None, 0
    for seed in range(draws):
        with rowlock.cluster(launcher="threads"):
            net = Net(middle)
            draw = np.random.default_rng(seed)
            for op in net.main.global_block().ops:
                op.attrs["op_device"] = "cpu" if draw.random() < 0.15 * seed else ""
            kind = CUDAPlace if seed else lambda i: CPUPlace()
            program = net.compiled([kind(i) for i in range(count)])
            results = net.train(program)
            expected = expected or results
            agree(results, expected)
            copies += sum(n.op == "memcpy" for n in program.explain().graph.nodes)
    assert copies > 5 * draws


def test_a_value_that_crosses_is_copied_once_in_each_direction() -> None:
    def build(x: Any, y: Any) -> list[Any]:
        hidden = layers.fc(x, 3)
        with guard("cpu"):
            up = layers.scale(hidden, 2.0) + layers.scale(hidden, 3.0)
        return [cost(layers.fc(up, 1) + layers.fc(up, 1), y), up]

    with rowlock.cluster(launcher="threads"):
        net = Net(build, fluid.optimizer.SGD(0.0))
        program = net.compiled([CUDAPlace(0)])
        net.train(program, steps=1)
        report = program.explain()
    nodes = [n for n in report.graph.nodes if n.op == "memcpy"]
    copied = [(n.reads()[0], n.attrs["dst_place_type"]) for n in nodes]
    assert len(set(copied)) == len(copied)
    assert next(v.name for v, to in copied if to == 0) == "fc_0.tmp_1"
    assert "device_guard: 2 value(s) are copied to the host, 24 bytes for each row" in str(report)


def test_feeds_losses_and_labels_on_the_host() -> None:
    def build(x: Any, y: Any) -> list[Any]:
        with guard("cpu"):
            hidden = layers.scale(x, 0.5)
        prediction = layers.fc(hidden, 1) + layers.fc(x, 1)
        with guard("cpu"):
            loss = cost(prediction, y)
        return [loss, hidden, x]

    for count in (1, 2):
        assert "run on the host" in both(build, count)


def shared(x: Any, y: Any) -> list[Any]:
    """One weight that ops on both sides use."""
    weight = fluid.ParamAttr(name="both")
    with guard("cpu"):
        hidden = layers.fc(x, 4, param_attr=weight, bias_attr=False)
    return [cost(layers.fc(layers.fc(hidden, 4, param_attr=weight), 1), y), hidden]


def test_a_persistable_that_both_use_lies_on_the_gpu() -> None:
    text = both(shared)
    assert "stays on the GPU: it updates both, both_velocity_0" in text
    assert "there these persistables lie" not in text


SWITCHES = {
    "reduce": {"reduce_strategy": BuildStrategy.ReduceStrategy.Reduce},
    "fused updates": {"fuse_all_optimizer_ops": True, "enable_auto_fusion": True},
    "memory": {"memory_optimize": False, "enable_inplace": False, "enable_addto": True},
    "fusions": {"fuse_elewise_add_act_ops": True, "fuse_gemm_epilogue": True},
}


@pytest.mark.parametrize("name", one_in(4, SWITCHES))
def test_switches_leave_the_guard_alone(name: str) -> None:
    assert "op(s) run on the host of each GPU" in both(middle, 2, **SWITCHES[name])


def test_decay_clipping_and_normalisation_across_the_guard() -> None:
    def build(x: Any, y: Any) -> list[Any]:
        with guard("cpu"):
            hidden = layers.batch_norm(layers.fc(x, 6, bias_attr=False), act="relu")
        return [cost(layers.fc(layers.batch_norm(hidden), 1), y), hidden]

    def optimizer() -> Any:
        clip = fluid.clip.GradientClipByGlobalNorm(0.5)
        decay = fluid.regularizer.L2Decay(0.01)
        return fluid.optimizer.Momentum(0.05, 0.9, regularization=decay, grad_clip=clip)

    for count in (1, 2):
        text = both(build, count, optimizer=optimizer)
        assert "stays on the GPU: it updates fc_0.w_0" in text  # its decay reads it there
        assert "batch_norm_0.w_1" in text  # statistics of the one on the host lie there


def test_a_place_without_rows_meets_the_others() -> None:
    def build(x: Any, y: Any) -> list[Any]:
        return middle(x, y)[:1]

    with rowlock.cluster(launcher="threads"):
        net = Net(build)
        strategy = BuildStrategy(
            gradient_scale_strategy=BuildStrategy.GradientScaleStrategy.SampleWeighted
        )
        program = net.compiled([CUDAPlace(0), CUDAPlace(1)], strategy)
        results = net.train(program, rows=1)
    with rowlock.cluster(launcher="threads"):
        net = Net(build)
        expected = net.train(net.compiled([CPUPlace()] * 2, strategy), rows=1)
    agree(results[-1:], expected[-1:])


def test_a_program_that_wants_a_value_elsewhere_moves_it() -> None:
    def build(x: Any, y: Any) -> list[Any]:
        with guard("cpu"):
            hidden = layers.fc(x, 3, param_attr="w", bias_attr="b")
        return [cost(layers.fc(hidden, 1), y), hidden]

    net = Net(build)
    plain, startup = fluid.Program(), fluid.Program()
    with fluid.program_guard(plain, startup):
        out = layers.fc(fluid.data("x", [None, 4]), 3, param_attr="w", bias_attr="b")
    with rowlock.cluster(launcher="threads"):
        exe = fluid.Executor(CUDAPlace(0))
        exe.run(net.startup, scope=net.scope)
        for step in range(3):
            x = np.full((2, 4), step + 1, np.float32)
            feed = {"x": x, "y": x[:, :1]}
            (hidden, w) = exe.run(
                net.main, feed=feed, fetch_list=[net.fetches[1], "w"], scope=net.scope
            )
            w, b = (np.array(net.scope.find_var(n).get_tensor()) for n in ("w", "b"))
            (result,) = exe.run(plain, feed={"x": x}, fetch_list=[out], scope=net.scope)
            np.testing.assert_allclose(result, x @ w + b, rtol=1e-5)
            (tested,) = exe.run(net.test, feed=feed, fetch_list=[net.fetches[1]], scope=net.scope)
            np.testing.assert_allclose(tested, result, rtol=1e-5)
            assert hidden.shape == (2, 3)


def test_written_values_reach_what_lies_on_the_host() -> None:
    with rowlock.cluster(launcher="threads"):
        net = Net(middle, fluid.optimizer.SGD(0.0))
        program = net.compiled([CUDAPlace(0)])
        net.train(program, steps=1)
        net.scope.find_var("fc_1.w_0").get_tensor().set(np.zeros((6, 5), np.float32), CPUPlace())
        net.scope.find_var("fc_1.b_0").get_tensor().set(np.zeros(5, np.float32), CPUPlace())
        results = net.train(program, steps=1)
    assert not results[0][1].any()


def test_the_graph_is_split_where_the_host_computes() -> None:
    with rowlock.cluster(launcher="threads"):
        net = Net(middle)
        program = net.compiled([CUDAPlace(0)])
        net.train(program, steps=3)
        text = str(program.explain())
    splits = [one for one in text.splitlines() if "placed on the host (device_guard)" in one]
    assert len(splits) == 9  # four ops forward, four backward, updates by momentum
    assert "split at mul (built at " in splits[0]


def test_on_cpu_places_the_guard_has_no_effect() -> None:
    def build(x: Any, y: Any) -> list[Any]:
        with guard("gpu"):
            hidden = layers.fc(x, 3)
        return [cost(layers.fc(hidden, 1), y)]

    net = Net(build)
    with rowlock.cluster(launcher="threads"):
        program = net.compiled([CPUPlace()])
        net.train(program, steps=1)
        text = str(program.explain())
    assert 'no effect on CPU places, everything runs on the CPU; ops that ask: 6 for "gpu"' in text
    assert "memcpy" not in text


def test_what_is_stamped_on_ops_is_what_paddle_stamps() -> None:
    def build(x: Any, y: Any) -> list[Any]:
        with guard("cpu"):
            hidden = layers.fc(x, 3, act="relu")
        with guard("gpu"):
            out = layers.fc(hidden, 2)
            with guard():
                return [layers.mean(out)]

    with guard("cpu"):
        net = Net(build, fluid.optimizer.Momentum(0.1, 0.9))
    ops = [(op.type, op.attr("op_device")) for op in net.main.global_block().ops]
    assert ops == [
        *(("mul", "cpu"), ("elementwise_add", "cpu"), ("relu", "cpu")),
        *(("mul", "gpu"), ("elementwise_add", "gpu"), ("mean", "")),
        *(("fill_constant", ""), ("mean_grad", "")),
        *(("elementwise_add_grad", "gpu"), ("mul_grad", "gpu")),
        *(("relu_grad", "cpu"), ("elementwise_add_grad", "cpu"), ("mul_grad", "cpu")),
        *(("momentum", "cpu"), ("momentum", "cpu"), ("momentum", "gpu"), ("momentum", "gpu")),
    ]
    devices = {op.output("Out")[0]: op.attr("op_device") for op in net.startup.global_block().ops}
    assert devices["fc_0.w_0"] == "cpu" and devices["fc_1.w_0"] == "gpu"
    assert devices["fc_1.w_0_velocity_0"] == "gpu" and devices["fc_0.w_0_velocity_0"] == "cpu"


@pytest.mark.parametrize(
    ("device", "why"),
    [
        ("npu", "Rowlock computes on CPUs and GPUs, not on NPUs"),
        ("gpu:0", "a replica has one GPU, that of its place"),
        ("cpu:1", "a CPU has no number"),
        (3, "there is no such device"),
    ],
)
def test_other_devices_are_refused(device: Any, why: str) -> None:
    message = f"device_guard takes .* got {device!r}: {why}"
    with pytest.raises(ValueError, match=message), static.device_guard(device):
        pass


def test_the_guard_ends_when_its_block_raises() -> None:
    with pytest.raises(KeyError), guard("cpu"):
        raise KeyError
    net = Net(lambda x, y: [cost(layers.fc(x, 1), y)])
    assert {op.attr("op_device") for op in net.main.global_block().ops} == {""}


def test_pinned_places_hold_data_and_compute_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("CPU_NUM", "3")
    assert fluid.cuda_pinned_places() == [fluid.CUDAPinnedPlace()] * 3
    assert fluid.cuda_pinned_places(1) == [rowlock.CUDAPinnedPlace()]
    tensor = fluid.Tensor()
    tensor.set(np.arange(8, dtype=np.float32).reshape(2, 4), fluid.CUDAPinnedPlace())
    with rowlock.cluster(launcher="threads"):
        for place in (CPUPlace(), CUDAPlace(0)):
            net = Net(lambda x, y: [cost(x, x) + layers.mean(layers.fc(x, 1)), x])
            net.exe = fluid.Executor(place)
            net.exe.run(net.startup, scope=net.scope)
            fed = {"x": tensor, "y": np.zeros((2, 1), np.float32)}
            (result,) = net.exe.run(net.main, feed=fed, fetch_list=["x"], scope=net.scope)
            np.testing.assert_array_equal(result, np.array(tensor))
    with pytest.raises(ValueError, match="nothing computes on CUDAPinnedPlace"):
        on_places(net.main, [fluid.CUDAPinnedPlace()], net.fetches[0])
    with pytest.raises(TypeError, match="a place such as CPUPlace"):
        fluid.Executor(fluid.CUDAPinnedPlace())  # type: ignore[arg-type]


def test_images_and_embeddings_on_the_host() -> None:
    def build(x: Any, y: Any) -> list[Any]:
        image = layers.reshape(x, [-1, 1, 2, 2])
        image = layers.conv2d(image, 3, 3, padding=1)
        with guard("cpu"):
            image = layers.conv2d(image, 4, 3, padding=1, act="relu")
            image = layers.pool2d(image, 2, "avg")
            ids = layers.cast(layers.scale(y, 7.0), "int64")
            looked_up = layers.embedding(ids, [8, 4])
        both_sides = layers.concat([layers.flatten(image), looked_up], axis=1)
        return [cost(layers.fc(both_sides, 1), y), image, looked_up]

    for count in (1, 2):
        text = both(build, count)
        assert "conv2d_grad, " in text and "only ops on the host use conv2d_1.b_0" in text
