"""The memory plan: laws that hold for every program, and what it saves on two that matter."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Any

import numpy as np
import pytest

import rowlock.fluid as fluid
from benchmarks import models as benchmarked
from rowlock.executor.device.device import Device
from rowlock.executor.host.arena import spec_of
from rowlock.executor.kernels.capabilities import capabilities
from rowlock.executor.plan.bind import Binder
from rowlock.executor.plan.buckets import Buckets
from rowlock.executor.plan.shapes import infer_specs
from rowlock.graph.compile import compile_program
from rowlock.graph.ir.replica_program import NodeRecord, ReplicaProgram
from rowlock.graph.lowering.memory import (
    MemoryOptions,
    MemoryPlan,
    Usage,
    largest_that_fits,
    most_at_once,
    nbytes,
    place,
    plan_memory,
)
from rowlock.graph.ops.collective import COLLECTIVES
from rowlock.graph.ops.registry import OPS, Spec
from rowlock.graph.passes.target import Target
from rowlock.graph.report.memory_report import report
from rowlock.strategies.build import BuildStrategy
from rowlock.strategies.types import VarType
from tests.conftest import draws, sample
from tests.graph.random_nets import RandomNet, random_net, run_steps
from tests.programs import own_programs

layers = fluid.layers
WISHES = [MemoryOptions(reuse, in_place) for reuse in (True, False) for in_place in (True, False)]
NETS = 60


def compiled_net(name: str, replicas: int) -> tuple[ReplicaProgram, list[Spec]]:
    """A benchmark's program, compiled for so many places, and what one place is fed."""
    main, _, loss, feed = benchmarked.build(fluid, name)[:4]
    target = Target(replicas=replicas, strategy=BuildStrategy(), has_loss=True)
    compiled = compile_program(main, tuple(feed), (loss.name,), target, capabilities())
    rows = {n: main.global_block().var(n).shape[0] == -1 for n in feed}
    fed = [a[: len(a) // replicas] if rows[n] else a for n, a in feed.items()]
    return compiled.program, [spec_of(array) for array in fed]


def planned(
    program: ReplicaProgram, feeds: Sequence[Spec], memory_options: MemoryOptions
) -> MemoryPlan:
    grouped = any(node.op in COLLECTIVES for node in program.nodes)
    specs = infer_specs(program, feeds, lambda name: None)
    return plan_memory(Usage(program, program.nodes, grouped=grouped), specs, memory_options)


def feeds_of(net: RandomNet) -> list[Spec]:
    return [spec_of(array) for array in net.feeds[0].values()]


def check_contents(plan: MemoryPlan) -> None:
    """Go through the step and note what lies where: whatever is read must still lie there."""
    program = plan.usage.program
    alive = {i for i in program.feeds if i in plan.roots}

    def overlapping(results: int) -> Iterator[int]:
        begin, end = plan.at(results), plan.at(results) + nbytes(plan.specs[results])
        for i in alive:
            if plan.at(i) < end and begin < plan.at(i) + nbytes(plan.specs[i]):
                yield i

    def check(position: int, node: NodeRecord | str) -> None:
        if position in plan.roots and nbytes(plan.specs[position]):
            assert position in alive, f"{node} reads {program.values[position].name}, overwritten"

    for node in plan.usage.nodes:
        for i in node.reads():
            check(i, node)
        results = [i for slot in node.outputs.values() for i in slot if i in plan.roots]
        written = [i for i in results if i not in plan.views and node.op not in COLLECTIVES]
        for i in written:
            alive.difference_update(list(overlapping(i)))
        alive.update(results)
        for i in results:
            check(i, node)
    for i in program.fetches:
        check(i, "the fetch")


@draws(15, NETS // 2)
@pytest.mark.parametrize("memory_options", WISHES)
def test_nothing_is_overwritten_while_it_is_needed(
    memory_options: MemoryOptions, draws: int
) -> None:
    shared = smaller = 0
    for seed in sample(NETS, draws):
        net = random_net(seed)
        plan = planned(net.compile().program, feeds_of(net), memory_options)
        check_contents(plan)
        shared += sum(root != i for i, root in plan.roots.items())
        smaller += plan.size < sum(plan.sizes.values())
        assert plan.most[1] <= plan.size
    assert bool(shared) == memory_options.in_place
    assert bool(smaller) == memory_options.reuse


@draws(6, 12)
def test_same_bits_however_memory_is_shared(draws: int) -> None:
    for seed in sample(25, draws):
        net = random_net(seed)
        program = net.compile().program
        whole = net.run(program)
        for memory_options in WISHES:
            assert_same_bits(net.run(program, memory_options), whole, f"net {seed}")


def assert_same_bits(run: Any, other_run: Any, label: str) -> None:
    """Compare what two runs of a net fetched, and the state behind them."""
    (fetched, state), (others, other_state) = run, other_run
    for ours, theirs in zip(fetched, others, strict=True):
        for one, other in zip(ours, theirs, strict=True):
            np.testing.assert_array_equal(one, other, err_msg=label)
    for name, array in other_state.items():
        np.testing.assert_array_equal(state[name], array, err_msg=f"{label}: {name}")


def test_neighbours_in_time_never_overlap() -> None:
    for seed in range(200):
        draw = np.random.default_rng(seed)
        count = int(draw.integers(1, 40))
        first = draw.integers(-1, 30, count)
        spans = {i: (int(a), int(a + draw.integers(0, 10))) for i, a in enumerate(first)}
        sizes = {i: int(draw.integers(0, 50)) for i in spans}
        offsets, size = place(spans, sizes)
        check_apart(spans, sizes, offsets)
        early = {i for i in spans if draw.random() < 0.3}
        around, extent = place(spans, sizes, early)
        check_apart(spans, sizes, around)
        assert extent == max((around[i] + sizes[i] for i in spans if sizes[i]), default=0)
        alone, _ = place(spans, {i: sizes[i] for i in early}, early)
        assert {i: around[i] for i in early} == alone, "whatever the sizes of the others are"
        assert most_at_once(spans, sizes)[1] <= size <= sum(sizes.values())


def check_apart(
    spans: Mapping[int, tuple[int, int]], sizes: Mapping[int, int], offsets: Mapping[int, int]
) -> None:
    for i, (first, last) in spans.items():
        for j, (begin, end) in spans.items():
            if i < j and first <= end and begin <= last and sizes[i] and sizes[j]:
                apart = offsets[i] + sizes[i] <= offsets[j] or offsets[j] + sizes[j] <= offsets[i]
                assert apart, (i, j)


@pytest.mark.parametrize("name", ["resnet18", "gpt"])
def test_close_to_the_least_and_far_below_the_most(name: str) -> None:
    program, feeds = compiled_net(name, replicas=2)
    plan = planned(program, feeds, MemoryOptions())
    check_contents(plan)
    assert plan.size <= 1.1 * plan.most[1]
    assert plan.size <= 0.6 * planned(program, feeds, MemoryOptions(False, False)).size
    movers = [node for node in program.nodes if node.op in ("split", "concat")]
    results = {i for node in movers for ids in node.outputs.values() for i in ids}
    assert len(movers) == (8 if name == "gpt" else 0)
    assert results <= plan.views, "heads are cut out of one array, their gradients made within one"
    memory = report(plan, MemoryOptions(), 0, grouped=True)
    assert memory.unmoved >= len(movers)
    assert (f"{memory.unmoved} op(s) move nothing" in str(memory)) == bool(memory.unmoved)


def test_what_follows_the_vote_can_be_done_again() -> None:
    """What is made before the last collective and read behind it stays: no later write may fall on it."""
    program, feeds = compiled_net("resnet18", replicas=2)
    plan = planned(program, feeds, MemoryOptions())
    vote = max(k for k, node in enumerate(program.nodes) if node.op in COLLECTIVES)
    late = program.nodes[vote + 1 :]
    read = {i for node in late for slot in node.inputs.values() for i in slot if i in plan.roots}
    results = {i for node in late for slot in node.outputs.values() for i in slot}
    assert read - results
    for i in read - results:
        assert plan.spans[plan.roots[i]][1] == len(program.nodes)


@pytest.mark.parametrize("most", [0, 1, 6, 9])
def test_the_largest_that_fits(most: int) -> None:
    assert largest_that_fits(lambda n: n <= most, 10) == most


@pytest.mark.parametrize(("order", "views"), [([0, 1], 1), ([1, 0], 0)])
def test_a_transpose_that_moves_nothing_costs_nothing(order: list[int], views: int) -> None:
    main = fluid.Program()
    with fluid.program_guard(main, fluid.Program()):
        doubled = fluid.layers.scale(fluid.data("x", [4, 4], "float32"), 2.0)
        turned = fluid.layers.transpose(fluid.layers.exp(doubled), order)
        out = fluid.layers.softmax(turned)
    target = Target(replicas=1, strategy=BuildStrategy())
    program = compile_program(main, ("x",), (out.name,), target, capabilities()).program
    plan = planned(program, [Spec((4, 4), VarType.FP32)], MemoryOptions(True, True))
    assert [program.values[i].name for i in plan.views] == [turned.name] * views


def test_gradients_of_a_sum_are_those_of_its_result_and_cost_nothing() -> None:
    main = fluid.Program()
    with fluid.program_guard(main, fluid.Program()):
        x = fluid.data("x", [4, 4], "float32")
        x.stop_gradient = False
        left, right = fluid.layers.exp(x), fluid.layers.sqrt(x)
        loss = fluid.layers.mean(fluid.layers.square(left + right))
        (slope,) = fluid.gradients(loss, x)
    target = Target(replicas=1, strategy=BuildStrategy())
    program = compile_program(main, ("x",), (slope.name,), target, capabilities()).program
    plan = planned(program, [Spec((4, 4), VarType.FP32)], MemoryOptions(True, True))
    views = {program.values[i].name for i in plan.views}
    assert {f"{left.name}@GRAD", f"{right.name}@GRAD"} <= views


@pytest.mark.parametrize(
    ("op", "attrs"),
    [
        ("reshape", {"shape": [0, -1]}),
        ("squeeze", {"axes": [1]}),
        ("unsqueeze", {"axes": [1]}),
        ("flatten", {"axis": 1}),
        ("transpose", {"axis": [0, 2, 1]}),
    ],
)
def test_gradients_of_views_keep_no_operand(op: str, attrs: dict[str, Any]) -> None:
    main = fluid.Program()
    with fluid.program_guard(main, fluid.Program()):
        x = layers.create_parameter([4, 1, 4], "float32")
        helper = fluid.layer_helper.LayerHelper(op)
        out = helper.create_variable_for_type_inference("float32")
        helper.append_op(op, {"X": layers.scale(x, 2.0)}, {"Out": out}, attrs)
        fluid.append_backward(layers.mean(layers.square(out)))
    target = Target(replicas=1, strategy=BuildStrategy())
    program = compile_program(main, (), (f"{x.name}@GRAD",), target, capabilities()).program
    (gradient,) = (node for node in program.nodes if node.op == f"{op}_grad")
    assert [program.values[i].name for i in gradient.reads()] == [f"{out.name}@GRAD"]


def parts_net(seed: int) -> RandomNet:
    """A net that cuts, joins and picks rows [R, 16] in float32, which begin on cache lines."""
    draw = np.random.default_rng(seed)
    with own_programs() as (main, startup):
        weight = layers.create_parameter([16, 16], "float32")
        past = [layers.matmul(fluid.data("x", [8, 16], "float32"), weight)]
        for _ in range(int(draw.integers(4, 12))):
            a, b = (past[int(draw.integers(len(past)))] for _ in range(2))
            rows, kind = a.shape[0], int(draw.integers(7))
            if kind == 0 and rows % 2 == 0:
                past += layers.split(a, 2, 0)
            elif kind == 1:
                past.append(layers.concat([a, layers.relu(b)], 0))
            elif kind == 2:
                joined = layers.stack([layers.tanh(a), layers.scale(a, 2.0)], 0)
                past.append(layers.reshape(joined, [2 * rows, 16]))
            elif kind == 3 and rows % 2 == 0:
                halves = layers.unstack(layers.reshape(a, [2, rows // 2, 16]), 0)
                past += [layers.scale(halves[0], 3.0), halves[1]]
            elif kind == 4 and rows > 1:
                past.append(layers.slice(a, [0], [1], [rows]))
            elif kind == 5 and rows > 1:
                past.append(layers.reshape(layers.slice(a, [0, 1], [0, 0], [1, 9]), [1, 9]))
                past[-1] = layers.pad(past[-1], [0, 0, 0, 7])
            else:
                past.append(layers.relu(layers.matmul(a, weight)))
        loss = layers.reduce_mean(layers.concat([layers.reduce_sum(one, 0) for one in past[1:]]))
        fluid.optimizer.SGD(0.05).minimize(loss)
    fetches = tuple({loss.name: 0, past[int(draw.integers(1, len(past)))].name: 0})
    feeds = [{"x": draw.standard_normal((8, 16)).astype("float32")} for _ in range(2)]
    state = {weight.name: draw.standard_normal((16, 16)).astype("float32") / 4}
    net = RandomNet(seed, "float32", main, feeds, fetches, state)
    compiled = compile_program(startup, (), (), Target(), capabilities(frozenset()))
    values = dict(net.state)
    run_steps(compiled.program, [{}], values)
    net.state = {**values, **state}
    return net


def bound(net: RandomNet, program: ReplicaProgram) -> Binder:
    def allocate(name: str, spec: Spec) -> np.ndarray:
        return net.state.setdefault(name, np.zeros(spec.shape, "float32"))

    specs = infer_specs(program, feeds_of(net), lambda name: spec_of(net.state[name]))
    return Binder(program, Device(seed=0), specs, allocate, Buckets(program, None))


@draws(10, 40)
def test_parts_lie_in_the_whole(draws: int) -> None:
    """The same bits as with copies; what may run side by side writes nothing that the other touches."""
    unmoved = 0
    for seed in sample(60, draws):
        net = parts_net(seed)
        program = net.compile().program
        plan = planned(program, feeds_of(net), MemoryOptions())
        check_contents(plan)
        assert all(plan.at(i) % 64 == 0 for i in plan.roots if nbytes(plan.specs[i]))
        unmoved += sum(
            OPS[node.op].parts is not None and any(i in plan.views for i in node.touches())
            for node in program.nodes
        )
        options = (MemoryOptions(), MemoryOptions(False, False))
        assert_same_bits(*(net.run(program, each) for each in options), f"net {seed}")
        check_side_by_side(bound(net, program), program, seed)
    assert unmoved > draws


def check_side_by_side(binder: Binder, program: ReplicaProgram, seed: int) -> None:
    draw = np.random.default_rng(seed)
    lanes = draw.integers(0, 2, len(program.nodes)).tolist()
    before: list[set[int]] = []
    for k, waits in enumerate(binder.plan(lanes).needs()):
        ahead = waits | {j for j in range(k) if lanes[j] == lanes[k]}
        before.append(ahead.union(*(before[j] for j in ahead)))
    arrays, views = binder._memory.arrays, binder.arena.plan.views
    touched = [[arrays[i] for i in (*node.reads(), *node.writes())] for node in program.nodes]
    for k, node in enumerate(program.nodes):
        written = [arrays[i] for ids in node.outputs.values() for i in ids if i not in views]
        for j in set(range(k)) - before[k]:
            assert not any(np.shares_memory(a, b) for a in written for b in touched[j]), (j, k)
