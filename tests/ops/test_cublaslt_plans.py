"""Which products a GPU is asked for: how few, of which sizes, and with what behind them."""

from __future__ import annotations

from collections import Counter
from functools import cache
from typing import Any

import numpy as np
import pytest

import rowlock.fluid as fluid
from rowlock.executor import kernels as _kernels  # noqa: F401 - fills the table of kernels
from rowlock.executor.cuda import nvrtc
from rowlock.executor.cuda.gemm import Gemm, ReferenceBlas, ReferenceProduct
from rowlock.executor.cuda.memory import DeviceMemory
from rowlock.executor.cuda.runtime import graph_can_hold
from rowlock.executor.device.device import Device
from rowlock.executor.host.arena import spec_of
from rowlock.executor.kernels.capabilities import capabilities
from rowlock.executor.kernels.cublaslt import attention, feedforward, score_rows
from rowlock.executor.kernels.cublaslt.fused_linear import weight_gradient
from rowlock.executor.kernels.cublaslt.product import finished, product
from rowlock.executor.kernels.registry import bind
from rowlock.executor.plan.bind import Binder
from rowlock.executor.plan.buckets import Buckets
from rowlock.executor.plan.shapes import infer_specs
from rowlock.executor.simulated.simulated import SimulatedRuntime
from rowlock.graph.compile import compile_program
from rowlock.graph.ops.registry import OPS, Spec
from rowlock.graph.passes.target import Target
from rowlock.strategies.errors import Unsupported
from rowlock.strategies.types import BFLOAT16, to_numpy
from tests.graph import gpt
from tests.ops.gpu import needs_compiler
from tests.ops.harness import draw, gradients, infer, run, specs_of
from tests.ops.test_conformance import seeds_of
from tests.ops.test_cublaslt import SAMPLES, close, on, rounded
from tests.programs import own_programs

pytestmark = needs_compiler
Arrays = dict[str, Any]
B, T, D, F = 2, 16, 32, 128  # batch, length, width and hidden width of a transformer's block


@cache
def _simulated() -> tuple[SimulatedRuntime, DeviceMemory]:
    runtime = SimulatedRuntime(0)
    return runtime, DeviceMemory(runtime)


def simulated(math: str = "float32") -> Device:
    """Return a simulated GPU, whether there is a real one or not: its products can be examined."""
    runtime, memory = _simulated()
    return Device(runtime=runtime, memory=memory, math=math, seed=7)


def zeros(kind: str, **shapes: tuple[int, ...]) -> Arrays:
    return {slot: [np.zeros(shape, kind)] for slot, shape in shapes.items()}


def planned(
    name: str, inputs: Arrays, attrs: dict[str, Any] | None = None, dev: Device | None = None
) -> list[Any]:
    """Return the calls of an op with all its outputs."""
    op = OPS[name]
    settings = {**op.attrs, **(attrs or {})}
    specs = infer(op, specs_of(inputs), settings)
    outputs = {s: [np.zeros(v.shape, to_numpy(v.dtype)) for v in many] for s, many in specs.items()}
    return bind(name, inputs, outputs, settings, dev or simulated(), "cublaslt")


def gemms(steps: list[Any]) -> list[Gemm]:
    return [step.gemm for step in steps if hasattr(step, "gemm")]


def told(steps: list[Any]) -> list[tuple[Any, ...]]:
    """Return each product's sizes, batch and epilogue."""
    return [(g.m, g.n, g.k, g.batch, g.epilogue) for g in gemms(steps)]


def test_a_stack_of_rows_is_one_product() -> None:
    x, w = (B, T, D), (D, F)
    calls = planned("matmul", zeros("float32", X=x, Y=w))
    assert told(calls) == [(B * T, F, D, 1, "none")]
    shapes = {"X": x, "Y": w, "Out@GRAD": (B, T, F)}
    calls = planned("matmul_grad", zeros("float32", **shapes))
    assert told(calls) == [(B * T, D, F, 1, "none"), (D, F, B * T, 1, "none")]
    assert [(g.transpose_a, g.transpose_b) for g in gemms(calls)] == [(False, True), (True, False)]


@pytest.mark.parametrize(
    ("kind", "approximate", "epilogues", "calls"),
    [
        ("float16", True, ["gelu_aux_bias"], 1),
        ("float16", False, ["bias"], 2),
        ("float32", True, ["bias"], 2),  # there is no float32 aux
    ],
)
def test_gelu_is_an_epilogue_where_there_is_one(
    kind: str, approximate: bool, epilogues: list[str], calls: int
) -> None:
    arrays = zeros(kind, X=(B * T, D), Y=(D, F), Bias=(F,))
    steps = planned(
        "fused_gemm_epilogue", arrays, {"activation": "gelu", "approximate": approximate}
    )
    assert [g.epilogue for g in gemms(steps)] == epilogues
    if approximate and kind == "float16":
        assert len(steps) == calls


def test_a_bias_gradient_comes_with_the_weights() -> None:
    for turned, epilogue in ((False, "bgrad_b"), (True, "bgrad_a")):
        shapes = {"DOut": (B * T, F), "X": (B * T, D), "Y": (F, D) if turned else (D, F)}
        steps = planned(
            "fused_gemm_epilogue_grad",
            zeros("float32", **shapes),
            {"activation_grad": "none", "trans_y": turned},
        )
        weights = (F, D) if turned else (D, F)
        assert told(steps) == [(B * T, D, F, 1, "none"), (*weights, B * T, 1, epilogue)]
        assert len(steps) == 2


def test_what_lies_off_a_boundary_is_no_part_of_an_epilogue() -> None:
    """The library is not told how a bias or an activation's operand is aligned, and may load vectors."""
    off = np.zeros(B * T * F + 1, "float16")[1:]
    arrays = zeros("float16", X=(B * T, D), Y=(D, F)) | {"Bias": [off[:F]]}
    steps = planned("fused_gemm_epilogue", arrays)
    assert told(steps) == [(B * T, F, D, 1, "none")]
    x, d, d_weight = (np.zeros(shape, "float16") for shape in ((B * T, D), (B * T, F), (D, F)))
    steps = weight_gradient(simulated(), x, d, d_weight, off[:F])
    assert told(steps) == [(D, F, B * T, 1, "none")]
    (y,), before = arrays["Y"], off.reshape(B * T, F)
    for aux, calls in ((before, None), (np.zeros_like(before), 1)):
        whole = finished(simulated(), x, y, d, "gelu_aux", aux=aux)
        assert (whole and len(whole)) == calls


def test_workspaces_begin_on_a_boundary_whatever_scratch_lies_before(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """On Hopper, products whose workspace lies off 256 bytes fail."""
    workspaces = []

    def noted(self: Any, gemm: Gemm, operands: Any, workspace: Any) -> Any:
        workspaces.append(workspace.ctypes.data)
        return ReferenceProduct(gemm, operands)

    monkeypatch.setattr(ReferenceBlas, "workspace", 32)
    monkeypatch.setattr(ReferenceBlas, "bind", noted)
    a, b = (np.zeros((3, 3, 3), "float32")[:, :, 0] for _ in range(2))  # copied to scratch
    product(simulated(), a, b, np.zeros((3, 3, 2), "float32")[:, :, 0])
    assert [at % 256 for at in workspaces] == [0]


@pytest.mark.parametrize(
    ("kind", "epilogue", "calls"), [("float16", "dgelu", 2), ("float32", "none", 3)]
)
def test_the_slope_of_a_gelu_below_is_an_epilogue(kind: str, epilogue: str, calls: int) -> None:
    shapes = {"DOut": (B, T, D), "X": (B, T, F), "Y": (F, D), "Below": (B, T, F)}
    steps = planned(
        "fused_gemm_epilogue_grad", zeros(kind, **shapes), {"activation_below": "gelu_grad"}
    )
    assert [g.epilogue for g in gemms(steps)] == [epilogue, "bgrad_b"]
    assert len(steps) == calls


@pytest.mark.parametrize("act", ["gelu", "relu"])
def test_two_linear_layers_are_products_alone(act: str) -> None:
    weights = {
        "Linear1Weight": (D, F),
        "Linear1Bias": (F,),
        "Linear2Weight": (F, D),
        "Linear2Bias": (D,),
    }
    shapes = {"X": (B * T, D), **weights}
    attrs = {"act_method": act, "approximate": True}
    steps = planned("fused_feedforward", zeros("float16", **shapes), attrs)
    assert told(steps) == [(B * T, F, D, 1, f"{act}_bias"), (B * T, D, F, 1, "bias")]
    assert len(steps) == 2
    grads = planned(
        "fused_feedforward_grad", zeros("float16", **shapes, **{"Out@GRAD": (B * T, D)}), attrs
    )
    assert told(grads) == [
        (B * T, F, D, 1, f"{act}_aux_bias"),
        (F, D, B * T, 1, "bgrad_b"),
        (B * T, F, D, 1, f"d{act}"),
        (D, F, B * T, 1, "bgrad_b"),
        (B * T, D, F, 1, "none"),
    ]
    assert len(grads) == 5


def test_attention_reads_a_packed_projection_where_it_lies() -> None:
    heads = 4
    q = (B, T, 3, heads, D // heads)
    arrays = zeros("float16", Q=q)
    steps = planned("fused_dot_product_attention", arrays, {"layout": "packed", "scale": 0.5})
    size = D // heads
    assert Counter(told(steps)) == {(T, T, size, heads, "none"): B, (T, size, T, heads, "none"): B}
    assert len(steps) == 2 * B + 1
    assert {g.alpha for g in gemms(steps) if g.n == T} == {0.5}
    assert {g.d_type for g in gemms(steps) if g.n == T} == {"float32"}


def test_a_transformers_block_is_few_products() -> None:
    """Heads of a packed projection have two strides, so the products of attention come in batches by sample."""
    with own_programs() as (main, _):
        loss = gpt.build(fluid, layers=1)
        fluid.optimizer.SGD(0.1).minimize(loss)
    feed, names = gpt.feed(0, rows=4), [loss.name]
    flags = fluid.BuildStrategy(fused_attention=True, fuse_gemm_epilogue=True)
    target, able = (
        Target(strategy=flags, has_loss=True),
        capabilities(frozenset(("cublaslt", "cuda"))),
    )
    program = compile_program(main, list(feed), names, target, able, "cupy").program
    specs = infer_specs(program, [spec_of(a) for a in feed.values()], lambda name: None)

    def allocate(name: str, spec: Spec) -> Any:
        return np.zeros(spec.shape, to_numpy(spec.dtype))

    plan = Binder(program, simulated(), specs, allocate, Buckets(program, None)).plan()
    products = Counter(line for one in plan.instructions for line in told(list(one.calls)))
    rows, width, words, length, heads = 4 * gpt.TOKENS, gpt.WIDTH, gpt.WORDS, gpt.TOKENS, gpt.HEADS
    size, wide = width // heads, 4 * width
    assert (length, heads) == (size, 2)  # so that all products of attention are alike
    linear = {(width, width): 1, (width, wide): 1, (wide, width): 1, (width, words): 1}
    expected = Counter({(length, size, length, 4, "none"): heads * (2 + 5)})
    for (k, n), times in linear.items():
        forward, to_x, to_weight = (rows, n, k), (rows, k, n), (k, n, rows)
        expected[(*forward, 1, "bias")] += times
        expected[(*to_x, 1, "none")] += times
        expected[(*to_weight, 1, "bgrad_b")] += times
    for m, n, k in ((rows, 3 * width, width), (rows, width, 3 * width), (width, 3 * width, rows)):
        expected[m, n, k, 1, "none"] += 1  # the projection has no bias
    assert products == expected


@pytest.mark.parametrize(("name", "index"), SAMPLES)
def test_a_graph_can_hold_every_step(name: str, index: int) -> None:
    op = OPS[name]
    inputs, attrs = draw(op, op.samples[index], "float32")
    assert all(graph_can_hold(step, np) for step in planned(name, inputs, attrs))


@pytest.fixture
def plain(monkeypatch: pytest.MonkeyPatch) -> None:
    """A library without epilogues."""
    monkeypatch.setattr(ReferenceBlas, "takes", lambda self, g, o: g.epilogue == "none")


@pytest.mark.parametrize(("name", "index"), [s for s in SAMPLES if s[0].startswith("fused_")])
def test_what_has_no_epilogue_is_computed_apart(name: str, index: int, plain: None) -> None:
    op = OPS[name]
    exact, attrs = draw(op, op.samples[index], "float64")
    outputs = run(op, exact, attrs)
    seeds = seeds_of(op, outputs)
    expected = gradients(op, exact, outputs, seeds, attrs)
    single = [rounded(arrays, "f4") for arrays in (exact, outputs, seeds)]
    results = run(op, single[0], attrs, **on(dev=simulated()))
    slopes = gradients(op, *single, attrs, **on(dev=simulated()))
    for arrays, values in ((results, outputs), (slopes, expected)):
        for slot, many in arrays.items():
            for one, value in zip(many, values[slot], strict=True):
                close(one, value, 2e-5, slot)


def test_rows_are_worked_on_in_turns(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(feedforward.CublasLtFeedForward, "rows_in_turn", 2)
    test_what_has_no_epilogue_is_computed_apart("fused_feedforward", 3, None)


def test_turns_are_not_added_up_in_sixteen_bits(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(feedforward.CublasLtFeedForward, "rows_in_turn", 1)
    op, rng = OPS["fused_feedforward"], np.random.default_rng(0)
    shapes = {"X": (256, 3), "Linear1Weight": (3, 5), "Linear2Weight": (5, 4)}
    low = {slot: [rng.random(shape).astype("f2")] for slot, shape in shapes.items()}
    seeds = {"Out": [rng.random((256, 4)).astype("f2")]}
    exact = [rounded(arrays, "f8") for arrays in (low, seeds)]
    attrs = {**op.attrs, "act_method": "relu"}
    slopes = gradients(op, low, {}, seeds, attrs, **on())
    expected = gradients(op, exact[0], {}, exact[1], attrs)
    for slot in ("Linear1Weight", "Linear2Weight"):
        close(slopes[slot][0], expected[slot][0], 6e-4, slot)


def laid(rng: np.random.Generator, shape: tuple[int, ...]) -> np.ndarray:
    """Draw an array that lies in memory in some order, with or without gaps, or repeats itself."""
    order = rng.permutation(len(shape))
    gaps = [int(rng.integers(1, 3)) if rng.random() < 0.2 else 1 for _ in shape]
    sizes = [shape[i] * gaps[i] for i in order]
    room = rng.standard_normal(sizes).astype("f4").transpose(np.argsort(order))
    return room[tuple(slice(None, None, gap) for gap in gaps)]


@pytest.mark.parametrize("seed", range(60))
def test_products_of_arrays_that_lie_anyhow(seed: int) -> None:
    rng = np.random.default_rng(seed)
    leads = [int(n) for n in rng.integers(1, 4, rng.integers(0, 3))]
    m, n, k = (int(x) for x in rng.integers(1, 5, 3))
    sides = []
    for rows, columns in ((m, k), (k, n)):
        own = [1 if rng.random() < 0.3 else size for size in leads]
        own = [] if rng.random() < 0.3 else own
        sides.append(laid(rng, (*own, rows, columns)))
    a, b = sides
    full = np.broadcast_shapes(a.shape[:-2], b.shape[:-2])
    sums = [i for i in range(len(full)) if rng.random() < 0.3]
    is_scalar = len(sums) == len(full) and rng.random() < 0.7
    shape = () if is_scalar else tuple(1 if i in sums else size for i, size in enumerate(full))
    c = laid(rng, (*shape, m, n))
    more = bool(rng.random() < 0.5)
    exact = 0.5 * np.matmul(a.astype("f8"), b.astype("f8"))
    exact = exact.sum(tuple(sums), keepdims=True).reshape(c.shape) + (c if more else 0)
    for step in product(simulated(), a, b, c, alpha=0.5, more=more):
        step()
    np.testing.assert_allclose(c, exact, rtol=1e-5, atol=1e-5)


def test_sums_over_a_batch_are_not_rounded_on_the_way() -> None:
    rng = np.random.default_rng(0)
    a, b = (rng.standard_normal((64, 2, 2)).astype("f2") for _ in range(2))
    b = np.repeat(b, 2, 2)[:, :, ::2]
    c = np.zeros((2, 2), "f2")
    a = a.swapaxes(0, 1).copy().swapaxes(0, 1)
    for step in product(simulated(), a, b, c):
        step()
    exact = np.einsum("lmk,lkn->mn", a.astype("f8"), b.astype("f8"))
    np.testing.assert_allclose(c, exact, rtol=1e-3, atol=1e-3)


# -- rows of scores ---------------------------------------------------------------------------------


def attended(keys: int, rows: int = 3) -> None:
    """Hold attention over so many keys, forward and back, to double precision."""
    op = OPS["fused_dot_product_attention"]
    rng = np.random.default_rng(keys)
    shapes = {"Q": (2, rows, 4), "K": (2, keys, 4), "V": (2, keys, 4), "Mask": (rows, keys)}
    exact = {slot: [rng.standard_normal(shape)] for slot, shape in shapes.items()}
    attrs = {**op.attrs, "scale": 0.7}
    outputs = run(op, exact, attrs)
    seeds = seeds_of(op, outputs)
    expected = gradients(op, exact, outputs, seeds, attrs)
    single = [rounded(arrays, "f4") for arrays in (exact, outputs, seeds)]
    results, slopes = run(op, single[0], attrs, **on()), gradients(op, *single, attrs, **on())
    for arrays, values in ((results, outputs), (slopes, expected)):
        for slot, many in arrays.items():
            close(many[0], values[slot][0], 3e-5, slot)


@pytest.mark.parametrize("keys", [33, 300, 1500, 2048])
def test_rows_of_any_length_are_softened(keys: int) -> None:
    attended(keys)


def test_heads_that_do_not_fit_are_worked_on_in_parts(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(attention, "_SCORES", 40)
    monkeypatch.setattr(attention, "_LEAST_ROWS", 2)
    attended(20, rows=7)


@pytest.mark.skipif(nvrtc.version() == "", reason="NVRTC is not installed")
def test_kernels_compile_for_a_gpu(monkeypatch: pytest.MonkeyPatch) -> None:
    kernels: list[Any] = []
    monkeypatch.setattr(Device, "launch", lambda dev, kernel, *launched: kernels.append(kernel))
    dev = simulated()
    for size in (32, 1024, 2048, 16384):
        for kind in ("float32", BFLOAT16, "float64"):
            weights = np.zeros((1, 1, 2, size), kind)
            scores = weights.astype(score_rows.wide_type(weights.dtype))
            column = scores[..., :1].copy()
            score_rows.softened(dev, scores, None, None, weights, column, column, 1.0)
            score_rows.sloped(dev, scores, None, None, weights, scores, weights, 1.0)
    assert len({kernel.key for kernel in kernels}) == 24
    for kernel in kernels:
        assert nvrtc.machine_code(kernel, (9, 0))


# -- what is not a number, and how exact the rest is ------------------------------------------------


def test_what_is_not_a_number_stays_so() -> None:
    for name in ("fused_gemm_epilogue", "fused_feedforward", "matmul"):
        op = OPS[name]
        inputs, attrs = draw(op, op.samples[0], "float32")
        inputs["X"][0].fill(np.nan)
        relu = {k: "relu" for k in ("activation", "act_method") if k in attrs}
        assert np.isnan(run(op, inputs, {**attrs, **relu}, **on())["Out"][0]).all(), name


def network(math: str, libraries: frozenset[str], back_end: str = "cupy") -> Any:
    with own_programs() as (main, _):
        x = fluid.data("x", [None, 4], "float32")
        loss = fluid.layers.mean(fluid.layers.fc(x, 3, bias_attr=False))
        fluid.optimizer.SGD(0.1).minimize(loss)
    target = Target(strategy=fluid.BuildStrategy(gpu_math=math), has_loss=True)
    able = capabilities(libraries)
    return compile_program(main, ["x"], [loss.name], target, able, back_end).program


def test_tf32_is_used_if_asked_for_and_only_on_gpus() -> None:
    libraries = frozenset(("cublaslt", "cuda"))
    assert network("tf32", libraries).math == "tf32"
    assert network("float32", libraries).math == "float32"
    assert network("tf32", frozenset(), "numpy").math == "float32"
    for math in ("float32", "tf32"):
        steps = planned("mul", zeros("float32", X=(4, 4), Y=(4, 4)), dev=simulated(math))
        assert [g.compute for g in gemms(steps)] == [math]
    steps = planned("mul", zeros("float64", X=(4, 4), Y=(4, 4)), dev=simulated("tf32"))
    assert [g.compute for g in gemms(steps)] == ["float64"]


def test_products_that_would_be_exact_are_refused_if_tf32_is_asked_for() -> None:
    with pytest.raises(Unsupported, match=r'gpu_math="tf32": mul \(built at .* by cupy'):
        network("tf32", frozenset(("cuda",)))
