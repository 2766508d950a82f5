"""build_cinn_pass: regions compiled by XLA train as the kernels of their ops do."""

from __future__ import annotations

import importlib.util
import itertools
from typing import Any

import numpy as np
import pytest

import rowlock
import rowlock.fluid as fluid
from rowlock.executor.device.device import Device
from rowlock.executor.kernels import capabilities as able
from rowlock.executor.kernels.registry import KERNELS, bind
from rowlock.executor.kernels.xla.lowering import can_lower
from rowlock.graph.ir.graph import Node, Value
from rowlock.graph.ops.region import REGION
from rowlock.graph.ops.registry import OPS, Spec
from rowlock.strategies.build import BuildStrategy
from rowlock.strategies.errors import ExecutionError, InvalidValue
from rowlock.strategies.types import to_var_type
from tests.conftest import one_in, one_of_each
from tests.ops import harness
from tests.programs import executor_after, on_places, own_programs, trained

needs_jax = pytest.mark.skipif(
    importlib.util.find_spec("jax") is None, reason="XLA needs jax (rowlock[xla])"
)
STEPS = 3


def training(name: str, **build: Any) -> tuple[dict[str, Any], Any]:
    """Return every persistable and what some steps fetch, and the report."""
    values, fetched, program = trained(name, 2, STEPS, build)
    values |= {f"loss {i} {k}": v for i, step in enumerate(fetched) for k, v in enumerate(step)}
    return values, program.explain()


@needs_jax
@pytest.mark.parametrize("name", one_in(4, ["mlp", "lenet", "resnet", "attention"], more=0))
def test_training_agrees_with_the_kernels(name: str) -> None:
    expected, _ = training(name)
    values, report = training(name, build_cinn_pass=True)
    assert any(node.op == REGION for node in report.graph.nodes)
    assert "XLA compiles" in str(report)
    assert report.kernels["xla"] >= 1
    for key, array in expected.items():
        np.testing.assert_allclose(values[key], array, rtol=1e-4, atol=2e-5, err_msg=key)


@needs_jax
def test_reduce_mode_keeps_updates_with_their_owners() -> None:
    reduce = BuildStrategy.ReduceStrategy.Reduce
    expected, _ = training("mlp", reduce_strategy=reduce)
    values, report = training("mlp", reduce_strategy=reduce, build_cinn_pass=True)
    assert {node.at for node in report.graph.nodes if node.op == REGION} >= {0, 1}
    for key, array in expected.items():
        np.testing.assert_allclose(values[key], array, rtol=1e-4, atol=2e-5, err_msg=key)


@needs_jax
def test_a_region_may_use_what_lasts_before_the_vote() -> None:
    """Statistics of a frozen batch norm, and classes' weights that an op returns as they are."""
    results = []
    for build in ({}, {"build_cinn_pass": True}):
        scope = fluid.Scope()
        with own_programs(3) as (main, startup):
            x, label = fluid.data("x", [None, 4]), fluid.data("label", [None, 1], "int64")
            h = fluid.layers.batch_norm(fluid.layers.fc(x, 4), act="relu", use_global_stats=True)
            loss = fluid.layers.mean(fluid.layers.hsigmoid(h, label, 6))
            fluid.optimizer.SGD(0.1).minimize(loss)
        exe = executor_after(startup, scope)
        feed = {"x": np.random.default_rng(0).random((6, 4), "float32")}
        feed["label"] = np.arange(6).reshape(6, 1)
        with rowlock.cluster(launcher="threads"):
            program = on_places(main, 2, loss, build=build)
            results.append([exe.run(program, feed, [loss], scope=scope)[0] for _ in range(3)])
        nodes = [node for node in program.explain().graph.nodes if node.op == REGION]
        bodies = [body_node["op"] for node in nodes for body_node in node.attrs["body"]]
        assert not build or {"batch_norm", "hierarchical_sigmoid"} <= {*bodies}
    np.testing.assert_allclose(*results, rtol=1e-5)


def test_without_jax_nothing_changes(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(able._VERSIONS, "xla", lambda: "")
    able.capabilities.cache_clear()
    try:
        expected, _ = training("mlp")
        values, report = training("mlp", build_cinn_pass=True)
    finally:
        able.capabilities.cache_clear()
    assert "build_cinn_pass: no effect: jax is not installed" in str(report)
    for key, array in expected.items():
        np.testing.assert_array_equal(values[key], array, err_msg=key)


def plain(op: str, inputs: Any, outputs: Any, attrs: Any) -> dict[str, Any]:
    """Return a node of a region."""
    settings = {**OPS[op].attrs, **attrs}
    return {
        "op": op,
        "inputs": inputs,
        "outputs": outputs,
        "attrs": settings,
        "where": "train.py:7",
    }


def lookup(ids: Any, table: Any, out: Any) -> list[Any]:
    """Bind a region of a lookup and its square."""
    body = [
        plain("lookup_table_v2", {"W": [0], "Ids": [1]}, {"Out": [2]}, {}),
        plain("square", {"X": [2]}, {"Out": [3]}, {}),
    ]
    attrs = {"body": body, "results": [3]}
    return bind(REGION, {"X": [table, ids]}, {"Out": [out]}, attrs, Device(), "xla")


def numbered(arrays: dict[str, list[Any]], first: int) -> dict[str, list[int]]:
    """Number arrays by slot from ``first`` on."""
    numbers = itertools.count(first)
    return {slot: [next(numbers) for _ in many] for slot, many in arrays.items()}


def compiled(
    op: str, inputs: dict[str, list[Any]], attrs: dict[str, Any], like: dict[str, list[Any]]
) -> dict[str, list[Any]]:
    """Run an op as a region; ``like`` are arrays such as it makes."""
    operands = [array for many in inputs.values() for array in many]
    results = {slot: [np.full_like(a, 7) for a in many] for slot, many in like.items()}
    outputs = numbered(results, len(operands))
    attrs = {
        "body": [plain(op, numbered(inputs, 0), outputs, attrs)],
        "results": [i for many in outputs.values() for i in many],
    }
    out = [array for many in results.values() for array in many]
    for step in bind(REGION, {"X": operands}, {"Out": out}, attrs, Device(), "xla"):
        step()
    return results


def takes(op: str, attrs: dict[str, Any], inputs: dict[str, list[Any]]) -> bool:
    """Tell whether a region can hold an op with these operands."""
    values = {
        slot: tuple(Value(slot, Spec(a.shape, to_var_type(a.dtype))) for a in many)
        for slot, many in inputs.items()
    }
    return can_lower(Node(op, values, {}, attrs))


def test_images_with_channels_last_are_left_to_the_kernels() -> None:
    """What asks for a region's nodes shows them as they are, though kernels see their images as NCHW."""
    asked = KERNELS[REGION, "xla"].takes
    assert asked is not None
    for name in ("conv2d", "pool2d"):
        op = OPS[name]
        for drawn in op.samples:
            inputs, attrs = harness.draw(op, drawn, "float32")
            values = {s: tuple(Value(s, x) for x in v) for s, v in harness.specs_of(inputs).items()}
            last = attrs["data_format"] == "NHWC"
            assert not (last and asked(Node(name, values, {}, attrs)))


def lowerable(case: tuple[str, int]) -> bool:
    """Tell whether a region can hold an op on its sample."""
    name, index = case
    inputs, attrs = harness.draw(OPS[name], OPS[name].samples[index], "float32")
    return name != REGION and takes(name, attrs, inputs)


SAMPLES = [(name, i) for name in sorted(OPS) for i in range(len(OPS[name].samples))]


@needs_jax
@pytest.mark.parametrize(("name", "index"), one_of_each(filter(lowerable, SAMPLES), 6))
def test_an_op_and_its_gradient_as_a_region(name: str, index: int) -> None:
    op = OPS[name]
    inputs, attrs = harness.draw(op, op.samples[index], "float32")
    outputs = harness.run(op, inputs, attrs)
    close(compiled(name, inputs, attrs, outputs), outputs)
    grad = op.grad
    if grad is None or grad.each:
        return
    settings = {**OPS[grad.type].attrs, **grad.attributes(attrs)}
    rng = np.random.default_rng(3)
    operands = {}
    for slot, source in grad.reads().items():
        arrays = inputs.get(source) or outputs.get(source)
        if source.endswith("@GRAD"):
            arrays = [rng.standard_normal(a.shape, "float32") for a in outputs[source[:-5]]]
        if arrays:
            operands[slot] = arrays
    operands |= harness.offsets_for(OPS[grad.type], inputs)
    if takes(grad.type, settings, operands):
        expected = harness.run(OPS[grad.type], operands, settings)
        close(compiled(grad.type, operands, settings, expected), expected)


def close(results: dict[str, list[Any]], wanted: dict[str, list[Any]]) -> None:
    """Assert equality but for rounding."""
    for slot, many in wanted.items():
        for one, other in zip(results[slot], many, strict=True):
            np.testing.assert_allclose(one, other, rtol=2e-5, atol=2e-5, err_msg=slot)


@needs_jax
def test_operands_are_read_where_they_lie() -> None:
    assert (REGION, "xla") in KERNELS
    room = np.zeros(64, np.float32)
    for start in (0, 1, 5):  # in a cache line, and elsewhere in it
        table = room[start : start + 12].reshape(4, 3)
        ids, out = np.array([1, 3]), np.empty((2, 3), np.float32)
        steps = lookup(ids, table, out)
        table[...] = np.arange(12).reshape(4, 3)
        ids[0] = 2
        for step in steps:
            step()
        np.testing.assert_array_equal(out, np.square(table[[2, 3]]))
        strided = np.zeros((3, 4), np.float32).T
        steps = lookup(ids, strided, out)
        strided[...] = table
        for step in steps:
            step()
        np.testing.assert_array_equal(out, np.square(table[[2, 3]]))


@needs_jax
def test_an_index_outside_is_refused() -> None:
    ids = np.array([1, 4])
    steps = lookup(ids, np.zeros((4, 3), np.float32), np.empty((2, 3), np.float32))
    with pytest.raises(InvalidValue, match="index 4 is outside the 4 rows"):
        for step in steps:
            step()


@needs_jax
def test_a_label_that_a_formula_refuses_is_named() -> None:
    main, startup, scope = fluid.Program(), fluid.Program(), fluid.Scope()
    with fluid.program_guard(main, startup):
        x, label = fluid.data("x", [2, 3]), fluid.data("label", [2, 1], "int64")
        loss = fluid.layers.mean(fluid.layers.bpr_loss(fluid.layers.softmax(x), label))
    program = fluid.CompiledProgram(main, build_strategy=BuildStrategy(build_cinn_pass=True))
    feed = {"x": np.ones((2, 3), "float32"), "label": np.array([[2], [7]])}
    with pytest.raises(
        ExecutionError, match=r"bpr_loss: label 7 is outside the 3 classes \(0 to 2\)"
    ):
        fluid.Executor(fluid.CPUPlace()).run(program, feed, [loss], scope=scope)
