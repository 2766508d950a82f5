"""Ops on the host beside a GPU: where values lie, what is copied, and that nothing else changes."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

import rowlock.fluid as fluid
from rowlock.executor.host.arena import spec_of
from rowlock.executor.kernels.capabilities import capabilities
from rowlock.executor.plan.shapes import infer_specs
from rowlock.graph.compile import Compiled, compile_program
from rowlock.graph.ir.graph import STATE, Graph, Node
from rowlock.graph.ir.reader import from_program
from rowlock.graph.ir.replica_program import ReplicaProgram
from rowlock.graph.lowering.memory import (
    ALL_MEMORY_OPTIONS,
    MemoryOptions,
    Usage,
    nbytes,
    plan_memory,
)
from rowlock.graph.lowering.placement import COPY, place_on_host
from rowlock.graph.ops.collective import COLLECTIVES
from rowlock.graph.passes.target import Target
from rowlock.graph.pipeline import check
from rowlock.strategies.build import BuildStrategy
from tests.conftest import sample
from tests.graph.random_nets import RandomNet, random_net, run_steps
from tests.graph.test_memory import check_apart
from tests.programs import own_programs

NETS = sample(24, 12)
_SHARES = (0.1, 0.4, 0.9)  # of ops that are placed on the host


def guarded(seed: int) -> RandomNet:
    """Draw a net, and which of its ops are asked to run on the host."""
    net = random_net(seed)
    draw = np.random.default_rng(seed)
    for op in net.main.global_block().ops:
        op.attrs["op_device"] = "cpu" if draw.random() < _SHARES[seed % 3] else ""
    return net


def on_gpus(net: RandomNet, replicas: int = 1) -> Compiled:
    target = Target(replicas=replicas, strategy=BuildStrategy(), has_loss=True)
    able = capabilities(frozenset())
    return compile_program(net.main, tuple(net.feeds[0]), net.fetches, target, able, "cupy")


def by_numpy(program: ReplicaProgram) -> ReplicaProgram:
    """Let NumPy compute everything; values lie where they lay."""
    return replace(program, nodes=tuple(replace(n, kernel="numpy") for n in program.nodes))


def check_sides(graph: Graph) -> None:
    """Every op works where its operands lie; copies cross, each value once; a persistable lies in one place."""
    copied = set()
    for node in graph.nodes:
        sides = {value.host for value in (*node.reads(), *node.writes())}
        if node.op == COPY:
            (source,), (copy,) = node.reads(), node.writes()
            assert sides == {True, False} and copy.host == (node.attrs["dst_place_type"] == 0)
            assert (source, copy.host) not in copied
            copied.add((source, copy.host))
        else:
            assert sides <= {node.host}, node
            assert not (node.host and node.op in COLLECTIVES)
    lasting = {(v.name, v.host) for v in graph.values() if v.kind == STATE}
    assert len({name for name, _ in lasting}) == len(lasting)


@pytest.mark.parametrize("replicas", [1, 3])
def test_only_copies_cross_between_host_and_gpu(replicas: int) -> None:
    copies = 0
    for seed in NETS:
        graph = on_gpus(guarded(seed), replicas).report.graph
        check(graph, f"net {seed}")
        check_sides(graph)
        copies += sum(node.op == COPY for node in graph.nodes)
    assert copies > 10 * len(NETS)


@pytest.mark.parametrize("memory_options", [ALL_MEMORY_OPTIONS, MemoryOptions(False, False)])
def test_each_side_has_an_arena_of_its_own(memory_options: MemoryOptions) -> None:
    for seed in NETS:
        net = guarded(seed)
        program = on_gpus(net).program
        specs = infer_specs(program, [spec_of(a) for a in net.feeds[0].values()], lambda name: None)
        plan = plan_memory(Usage(program, program.nodes, grouped=False), specs, memory_options)
        for i, root in plan.roots.items():
            assert plan.on_host(i) == plan.on_host(root)
        for host, size in ((True, plan.host_size), (False, plan.size)):
            spans = {i: span for i, span in plan.spans.items() if plan.on_host(i) == host}
            sizes = {i: nbytes(specs[i]) for i in spans}
            check_apart(spans, sizes, plan.offsets)
            assert all(plan.offsets[i] + sizes[i] <= size for i in spans)
        assert plan.most[1] <= plan.size


def test_results_do_not_depend_on_where_ops_run() -> None:
    for seed in NETS:
        net = guarded(seed)
        expected, state = net.run(net.compile().program)
        after = {name: array.copy() for name, array in net.state.items()}
        results = run_steps(by_numpy(on_gpus(net).program), net.feeds, after)
        for ours, theirs in zip(results, expected, strict=True):
            for one, other in zip(ours, theirs, strict=True):
                np.testing.assert_allclose(one, other, rtol=1e-6, err_msg=f"net {seed}")
        for name, array in state.items():
            np.testing.assert_allclose(after[name], array, rtol=1e-5, atol=1e-7, err_msg=name)


def two_layers() -> Graph:
    with own_programs() as (main, _):
        x = fluid.data("x", [None, 4])
        with fluid.device_guard("cpu"):
            h = fluid.layers.scale(x, 2.0)
        fluid.layers.fc(h, 3, bias_attr=False)
    return from_program(main, ["x"])


def test_an_op_without_a_kernel_for_gpus_runs_on_the_host() -> None:
    graph = place_on_host(two_layers(), lambda node: node.op == "scale")
    assert [(node.op, node.host) for node in graph.nodes] == [("scale", True), ("mul", True)]
    assert graph.notes[0] == "device_guard: 1 op(s) run on the host of each GPU: scale"
    assert graph.notes[1] == "no kernel for GPUs: 1 op(s) run on the host of each GPU: mul"
    assert graph.feeds[0].host


def test_a_copy_stands_before_its_first_reader() -> None:
    graph = place_on_host(two_layers(), lambda node: node.op in ("scale", "mul"))
    assert [str(node) for node in graph.nodes] == [
        "Out=scale_0.tmp_0 = scale(X=x) on the host",
        "Out=scale_0.tmp_0@GPU = memcpy(X=scale_0.tmp_0)",
        "Out=fc_0.tmp_0 = mul(X=scale_0.tmp_0@GPU, Y=fc_0.w_0)",
    ]
    assert graph.notes[1] == (
        "device_guard: 1 value(s) are copied to the GPU, 16 bytes for each row (scale_0.tmp_0)"
    )


def test_without_a_guard_nothing_changes() -> None:
    graph = two_layers()
    nodes: list[Node] = [replace(node, host=False) for node in graph.nodes]
    plain = graph.with_nodes(nodes)
    assert place_on_host(plain, lambda node: True) is plain
