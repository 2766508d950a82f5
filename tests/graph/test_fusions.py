"""What the fusion passes say, where fused ops stand, and what stops a fusion."""

from __future__ import annotations

import re
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

import rowlock
import rowlock.fluid as fluid
from rowlock.executor.kernels.capabilities import capabilities
from rowlock.executor.plan.shapes import infer_specs
from rowlock.graph.compile import Compiled, compile_program
from rowlock.graph.lowering.memory import Usage, plan_memory
from rowlock.graph.ops.registry import Spec
from rowlock.graph.passes.target import Target
from rowlock.strategies.build import BuildStrategy
from rowlock.strategies.types import VarType
from tests.contract.nets import Net, assert_close, feed
from tests.programs import own_programs

L = fluid.layers


def compiled(
    build: Callable[[], Any], fetch: tuple[str, ...] = (), replicas: int = 1, **flags: Any
) -> Compiled:
    with own_programs() as (main, _):
        loss = L.mean(build())
        if main.all_parameters():
            fluid.optimizer.SGD(0.1).minimize(loss)
        else:
            fluid.append_backward(loss)
    target = Target(strategy=BuildStrategy(**flags), has_loss=True, replicas=replicas)
    able = capabilities(frozenset())
    return compile_program(main, ("x",), (loss.name, *fetch), target, able)


def note(result: Compiled, name: str) -> str:
    return next(n for n in result.report.graph.notes if n.startswith(f"{name}: "))


def image() -> Any:
    return fluid.data("x", [None, 2, 4, 4])


def normed() -> Any:
    return L.relu(L.batch_norm(image()))


def doubled() -> Any:
    y = L.batch_norm(image())
    return L.elementwise_mul(L.relu(y), y)


@pytest.mark.parametrize(
    ("build", "fetch", "flags", "says"),
    [
        (doubled, (), {"fuse_bn_act_ops": True}, r"another reader, elementwise_mul and"),
        (normed, ("batch_norm_0.tmp_2",), {"fuse_bn_act_ops": True}, r"batch_norm .* is fetched"),
        (image, (), {"fuse_bn_act_ops": True}, "no activation stands behind a batch_norm"),
        (normed, (), {"fuse_bn_act_ops": True, "sync_batch_norm": True}, "split the batch norms"),
        (
            lambda: L.elementwise_add(L.fc(image(), 3, bias_attr=False), L.fc(image(), 3)),
            (),
            {"fuse_gemm_epilogue": True},
            r"left alone: the output of mul \(built at .*test_fusions.*\) is added to no bias row",
        ),
        (
            lambda: L.relu(L.fc(image(), 3)),
            ("fc_0.tmp_1",),
            {"fuse_gemm_epilogue": True},
            r"fused 1 product\(s\) with bias, 1 of their gradients; left alone: .*add .* is fetched",
        ),
        (normed, (), {"fuse_elewise_add_act_ops": True}, "no sum stands beside an activation"),
        (normed, (), {"fuse_relu_depthwise_conv": True}, "no relu stands before"),
    ],
)  # fmt: skip
def test_why_something_is_left_alone(
    build: Callable[[], Any], fetch: tuple[str, ...], flags: dict[str, Any], says: str
) -> None:
    name = next(iter(flags))
    result = compiled(build, fetch, replicas=2 if "sync_batch_norm" in flags else 1, **flags)
    text = note(result, name)
    assert "built at" not in text or "test_fusions.py:" in text
    assert re.search(says, text), text


def test_a_fused_gradient_finishes_the_gradients_of_its_parts() -> None:
    """Both the weight's and the bias's gradient meet their peers after it."""
    result = compiled(lambda: L.fc(image(), 3, act="gelu"), replicas=2, fuse_gemm_epilogue=True)
    nodes = result.report.graph.nodes
    fused = next(n for n in nodes if n.op == "fused_gemm_epilogue_grad")
    assert {name for name, _ in fused.grads} == {"fc_0.w_0", "fc_0.b_0"}
    meeting = next(n for n in nodes if n.op == "fused_all_reduce")
    assert set(meeting.reads()) == {grad for _, grad in fused.grads}


def test_the_pre_activation_is_kept_only_for_a_gradient() -> None:
    spaces = {}
    for act in ("gelu", "relu", None):
        result = compiled(lambda act=act: L.fc(image(), 3, act=act), fuse_gemm_epilogue=True)
        (fused,) = (n for n in result.report.graph.nodes if n.op == "fused_gemm_epilogue")
        spaces[act] = "ReserveSpace" in fused.outputs
    assert spaces == {"gelu": True, "relu": False, None: False}


@pytest.mark.parametrize("field", ["enable_sequential_execution", "sequential_run"])
def test_fused_programs_run_in_program_order_if_wanted(field: str) -> None:
    """The plan runs the ops in the order that the compiler tells, one after another."""
    results = []
    for build in ({}, {"fuse_gemm_epilogue": True, "fuse_elewise_add_act_ops": True, field: True}):
        with rowlock.cluster(launcher="threads"):
            net = Net()
            program = net.compiled(2, build=build)
            program.trace()
            for step in range(3):
                net.run(program, feed(6, step), [net.loss])
            results.append(net.parameters())
            events, nodes = program.executed(), program.explain().graph.nodes
    assert_close(*results, 1e-5)
    for place in events:
        ran = [event.op for event in place if event.op != "fetch"]
        assert ran == [node.op for node in nodes]
        assert len({event.lane for event in place}) == 1
    assert any(node.op == "fused_gemm_epilogue" for node in nodes)


def test_fusions_on_two_places_learn_what_one_does() -> None:
    fused = {"fuse_gemm_epilogue": True, "fuse_elewise_add_act_ops": True, "fuse_bn_act_ops": True}
    results = []
    for places, build in ((1, {}), (2, fused)):
        with rowlock.cluster(launcher="threads"):
            net = Net(layers=2)
            program = net.compiled(places, build=build)
            losses = [net.run(program, feed(6, step), [net.loss])[0] for step in range(3)]
            assert np.isfinite(losses).all()
            results.append(net.parameters())
    assert_close(*results, 1e-5)


def normed_twice() -> Any:
    y = image()
    for _ in range(3):
        y = L.batch_norm(L.conv2d(y, 4, 3, padding=1), act="relu")
    return y


def residual() -> Any:
    y = L.conv2d(image(), 4, 3, padding=1)
    for _ in range(3):
        y = L.elementwise_add(L.batch_norm(L.conv2d(y, 4, 3, padding=1)), y, act="relu")
    return y


def activated() -> Any:
    y = L.fc(image(), 64)
    for act in ("relu", "tanh", "sigmoid", "gelu"):
        y = L.elementwise_add(L.fc(y, 64), y, act=act)
    return y


def branches() -> Any:
    y = L.fc(image(), 64)
    for act in ("relu", "tanh", "sigmoid", "gelu"):
        y = L.elementwise_add(L.fc(y, 64), L.fc(y, 64), act=act)
    return y


def added_to() -> Any:
    y = L.fc(image(), 64)
    for act in ("relu", "tanh", "sigmoid", "gelu"):
        y = L.elementwise_add(L.fc(y, 64, act=act), y)
    return y


def biased() -> Any:
    y = L.fc(image(), 64)
    for act in ("relu", "tanh", "sigmoid", "gelu"):
        y = L.fc(y, 64, act=act)
    return y


@pytest.mark.parametrize(
    ("build", "flag"),
    [
        (normed_twice, "fuse_bn_act_ops"),
        (residual, "fuse_bn_act_ops"),
        (residual, "fuse_bn_add_act_ops"),
        (activated, "fuse_elewise_add_act_ops"),
        (branches, "fuse_elewise_add_act_ops"),
        (added_to, "fuse_elewise_add_act_ops"),
        (biased, "fuse_elewise_add_act_ops"),
        (activated, "fuse_gemm_epilogue"),
    ],
)
def test_fused_programs_need_no_more_memory_than_plain_ones(
    build: Callable[[], Any], flag: str
) -> None:
    """The gradient of a fused op, too, lies where the gradient lay that it is made of."""
    needed = []
    for flags in ({"fuse_bn_add_act_ops": False}, {"fuse_bn_add_act_ops": False, flag: True}):
        program = compiled(build, **flags).program
        specs = infer_specs(program, [Spec((64, 2, 4, 4), VarType.FP32)], lambda name: None)
        needed.append(plan_memory(Usage(program, program.nodes, grouped=False), specs).size)
    plain, fused = needed
    assert fused <= plain + 1024  # statistics are there at once, too
