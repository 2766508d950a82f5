"""``cpu_math="bfloat16"``: values that several products read lie in bfloat16 in memory."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import rowlock
import rowlock.fluid as fluid
from rowlock.executor.driver import choice
from rowlock.executor.kernels.capabilities import capabilities, installed
from rowlock.executor.kernels.onednn.library import Library, library
from rowlock.graph import compile as compiling
from rowlock.graph.compile import compile_program
from rowlock.graph.ir.capabilities import ROUNDED
from rowlock.graph.ops.registry import OPS
from rowlock.graph.passes.target import Target
from rowlock.strategies.build import BuildStrategy
from tests.ops.harness import run
from tests.ops.test_onednn import rounded
from tests.programs import on_places, own_programs

pytestmark = pytest.mark.skipif(library() is None, reason="oneDNN is not installed")
PRODUCTS = ("mul", "matmul", "conv2d", "depthwise_conv2d")
rounding = pytest.mark.skipif("bfloat16" not in installed(), reason="no products in bfloat16 here")


def of_words(x: Any) -> Any:
    """Return the result of two layers, and attention without heads."""
    h = fluid.layers.layer_norm(x, begin_norm_axis=2)
    h = fluid.layers.fc(h, 64, num_flatten_dims=2, act="gelu")
    h = fluid.layers.fc(h, 16, num_flatten_dims=2, act="relu")
    scores = fluid.layers.softmax(fluid.layers.matmul(h, h, transpose_y=True, alpha=0.25))
    return fluid.layers.matmul(scores, h)


def of_some_rows(x: Any) -> Any:
    """Return what layers make of some rows, which a step tells."""
    h = of_words(x)
    rows = fluid.layers.where(fluid.layers.reduce_sum(h, [1, 2]) > -100.0)
    return of_words(fluid.layers.gather_nd(h, rows))


def of_rounds(x: Any) -> Any:
    """Return what a layer makes in rounds that a step counts."""
    layers = fluid.layers
    weight = layers.create_parameter([16, 16], "float32")
    number = layers.fill_constant([1], "int64", 0)
    last = layers.cast(layers.reduce_max(layers.abs(x)), "int64")  # as the step tells

    def turn(number: Any, h: Any) -> list[Any]:
        return [number + 1, layers.tanh(layers.matmul(h, weight) + layers.relu(h))]

    first = layers.reduce_sum(x, 1)
    return layers.while_loop(lambda n, h: layers.less_than(n, last), turn, [number, first])[1]


def of_images(x: Any) -> Any:
    """Return what convolutions make of the words as images: with a norm, a sum, and channels by themselves."""
    layers = fluid.layers
    h = layers.reshape(x, [-1, 2, 6, 8])
    h = layers.relu(layers.batch_norm(layers.conv2d(h, 8, 3, padding=1, bias_attr=False)))
    more = layers.batch_norm(layers.conv2d(h, 8, 3, padding=1, bias_attr=False))
    h = layers.relu(layers.elementwise_add(h, more))
    h = layers.relu(layers.conv2d(h, 8, 3, padding=1, groups=8, use_cudnn=False))
    return layers.pool2d(layers.conv2d(h, 16, (3, 8)), pool_type="avg", global_pooling=True)


def built(net: Any = of_words) -> tuple[Any, Any, Any]:
    """Return main program, startup program and the loss of a net."""
    with own_programs(5) as (main, startup):
        x = fluid.data("x", [None, 6, 16])
        loss = fluid.layers.mean(fluid.layers.square(fluid.layers.fc(net(x), 4)))
        fluid.optimizer.Adam(0.01).minimize(loss)
    return main, startup, loss


def trained(
    places: int, *, rows: int = 8, net: Any = of_words, steps: int = 4, **switches: Any
) -> tuple[list[Any], str, Any]:
    """Return the losses by step and place, the compiler's report, and the plan's memory."""
    main, startup, loss = built(net)
    build = fluid.BuildStrategy(**switches)
    feed = {"x": np.random.default_rng(3).standard_normal((rows, 6, 16)).astype("float32")}
    exe = fluid.Executor(fluid.CPUPlace())
    with rowlock.cluster(launcher="threads"), fluid.scope_guard(fluid.Scope()):
        exe.run(startup)
        program = on_places(main, places, loss, build=build)
        losses = [exe.run(program, feed=feed, fetch_list=[loss])[0].tolist() for _ in range(steps)]
        return losses, str(program.explain()), program.explain().memory


def in_each_product(graph: Any, kernels: Any, *how: Any) -> Any:
    """Leave all to the products, which round their factors themselves."""
    return graph, kernels


@rounding
@pytest.mark.parametrize("places", [1, 2])
@pytest.mark.parametrize(
    "switches",
    [
        {},
        {"fuse_gemm_epilogue": True},
        {"fused_feedforward": True},
        {"reduce_strategy": fluid.BuildStrategy.ReduceStrategy.Reduce},
    ],
)
def test_values_in_bfloat16_change_no_bit(
    places: int, switches: dict[str, Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    exact, _, _ = trained(places, **switches)
    once, report, _ = trained(places, cpu_math="bfloat16", **switches)
    again, _, _ = trained(places, cpu_math="bfloat16", **switches)
    monkeypatch.setattr(compiling, "round_factors", in_each_product)
    each, _, _ = trained(places, cpu_math="bfloat16", **switches)
    assert once == each == again != exact
    np.testing.assert_allclose(once, exact, rtol=0.03)
    assert "values lie in bfloat16 in memory for" in report


@rounding
@pytest.mark.parametrize("net", [of_words, of_images])
def test_nothing_but_factors_of_products_is_rounded(net: Any) -> None:
    """Each op of a step computes in float32: products of their rounded factors, all else of what it reads."""
    main, startup, loss = built(net)
    build = fluid.BuildStrategy()
    build.cpu_math = "bfloat16"
    build.measure_kernels = False
    feed = {"x": np.random.default_rng(3).standard_normal((8, 6, 16)).astype("float32")}
    ops = [op for op in main.global_block().ops if op.type not in ("adam", "scale")]
    written = list(dict.fromkeys(n for op in ops for n in op.output_arg_names))
    temporary = [n for n in written if not main.global_block().var(n).persistable]
    exe = fluid.Executor(fluid.CPUPlace())
    with rowlock.cluster(launcher="threads"), fluid.scope_guard(fluid.Scope()):
        exe.run(startup)
        scope = fluid.global_scope()
        before = {
            v.name: np.array(scope.find_var(v.name).get_tensor())
            for v in main.list_vars()
            if v.persistable and scope.find_var(v.name) is not None
        }
        program = on_places(main, 1, loss, build=build)
        results = exe.run(program, feed=feed, fetch_list=temporary)
    values = {**before, **feed, **dict(zip(temporary, results, strict=True))}
    count = 0
    for op in ops:
        declared = OPS[op.type]
        inputs = {
            slot.name: [values[name] for name in op.input(slot.name)]
            for slot in declared.input_slots
            if op.input(slot.name)
        }
        multiplies = op.type.removesuffix("_grad") in PRODUCTS
        count += multiplies
        attrs = {**declared.attrs, **op.all_attrs()}
        expected = run(declared, rounded(inputs) if multiplies else inputs, attrs)
        for slot, arrays in expected.items():
            for name, array in zip(op.output(slot), arrays, strict=False):
                if name in temporary and slot not in ("XShape", "Mask"):
                    near = 1e-5 * abs(array).max()  # to round would take 200 times that
                    np.testing.assert_allclose(values[name], array, 0, near, err_msg=name)
    assert count >= 8


@rounding
def test_memory_of_a_step_counts_bfloat16(monkeypatch: pytest.MonkeyPatch) -> None:
    """Activations for the backward pass take half; parameters, few beside them, have a copy."""
    _, _, memory = trained(1, rows=256, cpu_math="bfloat16")
    monkeypatch.setattr(compiling, "round_factors", in_each_product)
    _, _, before = trained(1, rows=256, cpu_math="bfloat16")
    assert memory.arena < 0.95 * before.arena and memory.peak < 0.95 * before.peak


def program_of(math: str, able: Any, fetch: str = "", train: bool = True) -> Any:
    main, _, loss = built()
    main = main if train else main.clone(for_test=True)
    target = Target(strategy=BuildStrategy(cpu_math=math))
    keep = None if train else [loss.name]
    return compile_program(main, ("x",), (fetch or loss.name,), target, able, keep=keep)


@rounding
def test_each_value_is_rounded_once() -> None:
    compiled = program_of("bfloat16", capabilities())
    values, nodes = compiled.program.values, compiled.program.nodes
    copies = [node for node in nodes if node.op == "transfer_layout"]
    sources = [values[node.inputs["X"][0]].name for node in copies]
    assert len(set(sources)) == len(sources)
    assert {"x", "fc_0.w_0"} - set(sources) == {"x"}, "the layer norm alone reads x"
    rounded = {i for i, value in enumerate(values) if value.layout == ROUNDED}
    assert rounded == {node.outputs["Out"][0] for node in copies}
    for i in rounded:
        readers = [
            node.op for node in nodes for slot in node.inputs.values() for j in slot if i == j
        ]
        grads = [op for op in readers if op.endswith("_grad")]
        assert set(readers) <= {"mul", "mul_grad", "matmul", "matmul_grad", "relu_grad"} and grads
    plain = program_of("float32", capabilities()).program
    assert not any(value.layout for value in plain.values)


@rounding
def test_parameters_that_no_step_changes_are_packed_by_the_library() -> None:
    """It keeps them in bfloat16, in its own order, and copies after writes alone."""
    program = program_of("bfloat16", capabilities(), train=False).program
    copies = [node for node in program.nodes if node.op == "transfer_layout"]
    kinds = {program.values[node.inputs["X"][0]].kind for node in copies}
    assert kinds == {"temp"}, "h is both factors of the scores, and one of the sums"


@rounding
@pytest.mark.parametrize(
    ("net", "text"),
    [
        (of_some_rows, "; 15 values lie in bfloat16"),
        (of_rounds, "of 1 matmul_grad; 1 values lie in bfloat16 in memory for 2 of 4 factors"),
    ],
)
def test_values_of_segments_and_rounds_change_no_bit(
    net: Any, text: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    exact, _, _ = trained(1, net=net)
    once, report, _ = trained(1, net=net, cpu_math="bfloat16")
    monkeypatch.setattr(compiling, "round_factors", in_each_product)
    each, _, _ = trained(1, net=net, cpu_math="bfloat16")
    assert once == each != exact
    np.testing.assert_allclose(once, exact, rtol=0.03, atol=0.003)
    assert text in report


@rounding
@pytest.mark.parametrize("kernel", ["", "windows", "blocked", "float32"])
def test_images_in_bfloat16(kernel: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """Whatever kernel is measured to be the fastest reads them; those in float32 read them rounded."""
    monkeypatch.setattr(
        choice, "fastest", lambda names, seconds: kernel if kernel in names else names[0]
    )
    how: dict[str, Any] = {"net": of_images, "measure_kernels": bool(kernel), "rows": 64}
    exact, _, before = trained(1, steps=20, **how)
    how["cpu_math"] = "bfloat16"
    once, report, memory = trained(1, steps=20, **how)
    assert once != exact
    np.testing.assert_allclose(once, exact, rtol=0.02)
    assert memory.arena < 0.95 * before.arena
    assert "of 3 conv2d, 1 depthwise_conv2d, 1 mul, 1 mul_grad, 5 conv2d_grad, 2" in report
    assert ("stay float32" in report) == (kernel == "float32")
    if kernel != "float32":
        monkeypatch.setattr(compiling, "round_factors", in_each_product)
        assert trained(1, steps=20, **how)[0] == once


def test_without_instructions_products_are_exact_and_explain_says_so(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    exact, _, memory = trained(2)
    monkeypatch.setattr(Library, "rounds", False)
    losses, report, same = trained(2, cpu_math="bfloat16")
    assert losses == exact and same == memory
    assert "cpu_math: products are computed in float32, for the processors" in report
    assert "values lie in bfloat16" not in report
    assert "bfloat16" not in installed()
