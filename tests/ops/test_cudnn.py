"""Walks the samples of every op that cuDNN computes on a GPU, real or simulated, in both orders of images."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from rowlock.executor.cuda import nvrtc
from rowlock.executor.cuda.dnn import AttentionGrad, BatchNorm, BatchNormGrad, Convolution, Graph
from rowlock.executor.cuda.memory import DeviceMemory
from rowlock.executor.cuda.runtime import Step, graph_can_hold
from rowlock.executor.cuda.transfers import device_array
from rowlock.executor.kernels.registry import KERNELS, bind
from rowlock.graph.ir.capabilities import CHANNELS_LAST, IN_ORDER
from rowlock.graph.ir.graph import Node, Value
from rowlock.graph.ops.attention import NO_DROPOUT
from rowlock.graph.ops.registry import OPS, Op, Spec
from rowlock.strategies.types import BFLOAT16, VarType, to_numpy
from tests.ops.cuda_cases import close, taken
from tests.ops.gpu import collected, gpu, needs_compiler
from tests.ops.harness import Arrays, draw, gradients, infer, laid_out, run, specs_of
from tests.ops.harness import _home as home
from tests.ops.test_conformance import CASES, reference_of, seeds_of
from tests.ops.test_low_precision import assert_near, wide

pytestmark = needs_compiler
ATTENTION = "fused_dot_product_attention"
SAMPLES = [(n, i) for n, i in CASES if (n, "cudnn") in KERNELS and n != ATTENTION]
DIFFERENTIABLE = [(n, i) for n, i in SAMPLES if OPS[n].grad]
LAYOUTS = [IN_ORDER, CHANNELS_LAST]
# What stays float32 beside low precision.
APART = (
    "Scale",
    "Bias",
    "Mean",
    "Variance",
    "MeanOut",
    "VarianceOut",
    "SavedMean",
    "SavedVariance",
)
LOW = {"float16": np.dtype(np.float16), "bfloat16": BFLOAT16}


@pytest.fixture(autouse=True)
def _library() -> None:
    """A real GPU may lack it; then the next library computes, which other tests hold to the same samples."""
    runtime = gpu().runtime
    if runtime is not None and "cudnn" not in runtime.versions():
        pytest.skip("cuDNN, or its frontend, is not installed")


def on(**more: Any) -> dict[str, Any]:
    return {"back_end": "cudnn", "dev": gpu(), **more}


def drawn(name: str, index: int, kind: str = "float32") -> tuple[Op, Arrays, dict[str, Any]]:
    """Draw a sample that the kernel takes in low precision."""
    op = OPS[name]
    inputs, attrs = draw(op, op.samples[index], kind)
    if not taken(op, rounded(inputs, "f2", APART), attrs, "cudnn"):
        pytest.skip("left to others")
    return op, inputs, attrs


def rounded(arrays: Arrays, kind: Any, apart: tuple[str, ...] = ()) -> Arrays:
    """Round arrays; those of slots ``apart`` to float32. Bits of masks stay as they are."""

    def one(slot: str, array: Any) -> Any:
        return array if array.dtype == np.uint8 else array.astype("f4" if slot in apart else kind)

    return {slot: [one(slot, a) for a in many] for slot, many in arrays.items()}


def order(layout: str, attrs: dict[str, Any]) -> str:
    """Return the order in which images lie, as the compiler plans it."""
    return IN_ORDER if attrs.get("data_layout") == CHANNELS_LAST else layout


@pytest.mark.parametrize("layout", LAYOUTS)
@pytest.mark.parametrize(("name", "index"), SAMPLES)
def test_kernel_agrees_with_the_reference(name: str, index: int, layout: str) -> None:
    op, inputs, attrs = drawn(name, index)
    outputs = run(op, inputs, attrs, **on(layout=order(layout, attrs)))
    for slot, values in reference_of(op, inputs, attrs).items():
        for array, value in zip(outputs[slot], values, strict=True):
            close(array, value, 1e-5, slot)


@pytest.mark.parametrize("layout", LAYOUTS)
@pytest.mark.parametrize(("name", "index"), DIFFERENTIABLE)
def test_gradients_agree_with_those_in_double_precision(name: str, index: int, layout: str) -> None:
    op, exact, attrs = drawn(name, index, "float64")
    outputs = run(op, exact, attrs)
    seeds = seeds_of(op, outputs)
    expected = gradients(op, exact, outputs, seeds, attrs)
    single = [rounded(arrays, "f4") for arrays in (exact, outputs, seeds)]
    how = on(layout=order(layout, attrs))
    slopes = gradients(op, *single, attrs, **how)
    for slot, grads in slopes.items():
        alone = gradients(op, *single, attrs, only=slot, **how)[slot]
        for one, other, value in zip(grads, alone, expected[slot], strict=True):
            close(one, value, 2e-5, slot)
            close(other, value, 2e-5, slot)
    assert op.grad is not None
    if OPS[op.grad.type].in_place:
        instead = gradients(op, *single, attrs, overwrite=True, **how)
        for slot, grads in slopes.items():
            for one, other in zip(grads, instead[slot], strict=True):
                np.testing.assert_array_equal(one, other, err_msg=slot)


@pytest.mark.parametrize("kind", LOW)
@pytest.mark.parametrize("name", sorted({n for n, _ in SAMPLES}))
def test_sixteen_bits_are_rounded_once(name: str, kind: str) -> None:
    op, inputs, attrs = drawn(name, 0)
    low, how = rounded(inputs, LOW[kind], APART), on(layout=CHANNELS_LAST)
    exact = rounded(low, "f8", ())
    outputs = run(op, low, attrs, **how)
    expected = run(op, exact, attrs)
    for slot, arrays in outputs.items():
        for one, value in zip(arrays, expected[slot], strict=True):
            if one.dtype == np.uint8:
                np.testing.assert_array_equal(one, value)
                continue
            assert one.dtype == (np.float32 if slot in APART else LOW[kind]), slot
            assert_near(one, value, kind, slot)
    if op.grad is None:
        return
    seeds = rounded(seeds_of(op, expected), LOW[kind], APART)
    slopes = gradients(op, low, outputs, seeds, attrs, **how)
    grads = gradients(op, exact, wide(rounded(outputs, "f8")), rounded(seeds, "f8"), attrs)
    for slot, arrays in slopes.items():
        for one, value in zip(arrays, grads[slot], strict=True):
            assert_near(one, value, kind, slot)


def heads(*lead: int, queries: int = 5, keys: int = 7, mask: Any = None) -> Arrays:
    rng = np.random.default_rng(3)
    shapes = {"Q": (*lead, queries, 8), "K": (*lead, keys, 8), "V": (*lead, keys, 16)}
    shapes.update({"Mask": mask} if mask else {})
    return {s: [rng.standard_normal(shape)] for s, shape in shapes.items()}


def packed(mask: Any = None) -> Arrays:
    rng = np.random.default_rng(4)
    inputs = {"Q": [rng.standard_normal((2, 6, 3, 2, 8))]}
    return {**inputs, "Mask": [rng.standard_normal(mask)]} if mask else inputs


UPSCALED = {"is_test": True, "dropout_prob": 0.3, "dropout_implementation": "upscale_in_train"}
CAUSAL = {"layout": "packed", "scale": 0.35, "causal": True}
ATTENDED: list[tuple[Arrays, dict[str, Any]]] = [
    (heads(2, 3), {"scale": 0.5}),
    (heads(2, mask=(5, 7)), {}),
    (heads(), {"scale": 0.25, "dropout": {**NO_DROPOUT, **UPSCALED}}),
    (heads(2, 3, mask=(2, 1, 1, 7)), {}),
    (heads(2, 3, mask=(3, 5, 7)), {"mask_axis": 1}),
    (packed((6, 6)), {"layout": "packed", "scale": 0.35}),
    ({s: [a[0].swapaxes(1, 2)] for s, a in heads(2, 3).items()}, {"layout": "bthd"}),
    ({**packed((6, 6)), "Mask": [np.triu(np.full((6, 6), -12345.5), 1)]}, CAUSAL),
]


def test_a_causal_mask_that_learns_is_read_as_any_other(monkeypatch: pytest.MonkeyPatch) -> None:
    """cuDNN has the gradient of what is added to scores, not of a band."""
    op, (inputs, settings) = OPS[ATTENTION], ATTENDED[-1]
    low, graphs, dnn = rounded(inputs, "f2"), list[AttentionGrad](), type(gpu().cuda.dnn)
    plain = dnn.bind

    def noted(self: Any, graph: Any, arrays: Any, workspace: Any) -> Any:
        graphs.extend([graph] if isinstance(graph, AttentionGrad) else [])
        return plain(self, graph, arrays, workspace)

    monkeypatch.setattr(dnn, "bind", noted)
    attrs = {**op.attrs, **settings}
    outputs = run(op, low, attrs, **on())
    assert gradients(op, low, outputs, outputs, attrs, **on())["Mask"][0].any()
    (graph,) = graphs
    assert attrs["causal"] and not graph.forward.causal and graph.forward.mask == graph.d_mask


@pytest.mark.parametrize("kind", LOW)
@pytest.mark.parametrize("case", range(len(ATTENDED)))
def test_attention_in_sixteen_bits(case: int, kind: str) -> None:
    op, (inputs, settings) = OPS[ATTENTION], ATTENDED[case]
    attrs = {**op.attrs, **settings}
    low = rounded({s: [np.ascontiguousarray(x) for x in a] for s, a in inputs.items()}, LOW[kind])
    exact, how = rounded(low, "f8"), on()
    outputs, expected = run(op, low, attrs, **how), run(op, exact, attrs)
    assert_near(outputs["Out"][0], expected["Out"][0], kind)
    # what is kept of each row stands for the same weights
    logarithms = [
        np.asarray(results["SoftmaxMax"][0], "f8") + np.log(results["SoftmaxSum"][0])
        for results in (outputs, expected)
    ]
    np.testing.assert_allclose(*logarithms, rtol=1e-5, atol=1e-5)
    seeds = rounded({"Out": seeds_of(op, expected)["Out"]}, LOW[kind])
    grads = gradients(op, exact, expected, rounded(seeds, "f8"), attrs)
    apart = ("SoftmaxMax", "SoftmaxSum")
    others = rounded(expected, LOW[kind], apart)  # of a kernel that keeps two numbers a row
    for saved in (outputs, others):
        slopes = gradients(op, low, saved, seeds, attrs, **how)
        for slot in (slot for slot, arrays in slopes.items() if arrays):
            assert_near(slopes[slot][0], grads[slot][0], kind, slot)
            alone = gradients(op, low, saved, seeds, attrs, only=slot, **how)[slot][0]
            np.testing.assert_array_equal(alone, slopes[slot][0], err_msg=slot)


def made_of(op_type: str, **slots: Any) -> tuple[list[Step], dict[str, Any]]:
    """Bind an op's gradient or forward kernel on images with channels last; return its calls, and arrays."""
    op = OPS[op_type]
    arrays = {
        s.name: laid_out(shape, kind, CHANNELS_LAST, gpu().xp)
        for s in (*op.input_slots, *op.output_slots)
        if (declared := slots.get(s.parameter)) is not None
        for shape, kind in [declared]
    }
    sides = [
        {s.name: [arrays[s.name]] if s.name in arrays else [] for s in side}
        for side in (op.input_slots, op.output_slots)
    ]
    return bind(op_type, *sides, {**op.attrs, **slots["attrs"]}, gpu(), "cudnn"), arrays


def graphs_of(steps: list[Step]) -> list[Graph]:
    return [step.graph for step in steps if hasattr(step, "graph")]


IMAGE, C = ((2, 8, 4, 4), BFLOAT16), ((8,), np.dtype("f4"))


def test_a_residual_block_takes_few_calls() -> None:
    """A convolution is one call, its gradients two; batch norm with sum and relu is one, and a tiny kernel."""
    weights = ((8, 8, 3, 3), BFLOAT16)
    attrs = {"paddings": [1, 1]}
    steps, _ = made_of("conv2d", input=IMAGE, filter=weights, output=IMAGE, attrs=attrs)
    assert [type(g) for g in graphs_of(steps)] == [Convolution] and len(steps) == 1
    steps, _ = made_of(
        "conv2d_grad", input=IMAGE, filter=weights, d_output=IMAGE,
        d_input=IMAGE, d_filter=weights, attrs=attrs,
    )  # fmt: skip
    assert [g.result for g in graphs_of(steps) if isinstance(g, Convolution)] == ["w", "x"]
    assert len(steps) == 2
    norm = dict.fromkeys(
        ("scale", "bias", "mean", "variance", "mean_out", "variance_out", "saved_mean"), C
    )
    steps, _ = made_of(
        "fused_bn_add_activation", x=IMAGE, z=IMAGE, y=IMAGE, saved_variance=C, **norm, attrs={}
    )
    (graph,) = graphs_of(steps)
    assert isinstance(graph, BatchNorm) and graph.adds and graph.relu and len(steps) == 2


@pytest.mark.parametrize("kind", LOW)
def test_a_sum_is_part_of_the_call_or_behind_it(kind: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """Of whole numbers that low precision holds, both ways give the bits of a gradient and a sum."""
    rng = np.random.default_rng(5)

    def whole(*shape: int) -> np.ndarray:
        return rng.integers(-2, 3, shape).astype(LOW[kind])

    inputs = {"Input": [whole(2, 4, 7, 7)], "Filter": [whole(8, 4, 3, 3)]}
    d_y, addend = whole(2, 8, 4, 4), whole(2, 4, 7, 7)
    attrs = {**OPS["conv2d"].attrs, "strides": [2, 2], "paddings": [1, 1]}
    how = on(layout=CHANNELS_LAST)
    (d_x,) = gradients(OPS["conv2d"], inputs, {}, {"Output": [d_y]}, attrs, **how)["Input"]
    op = OPS["conv2d_grad_add"]
    attrs = {name: attrs[name] for name in op.attrs}
    inputs |= {"Output@GRAD": [d_y], "Addend": [addend]}
    together = run(op, inputs, attrs, **how)["Input@GRAD"][0]
    np.testing.assert_array_equal(together, d_x + addend)
    dnn = type(gpu().runtime.dnn)
    plain = dnn.workspace
    asked: list[bool] = []

    def workspace(self: Any, graph: Graph) -> int | None:
        asked.append(isinstance(graph, Convolution) and graph.addend is not None)
        return None if asked[-1] else plain(self, graph)

    monkeypatch.setattr(dnn, "workspace", workspace)
    np.testing.assert_array_equal(run(op, inputs, attrs, **how)["Input@GRAD"][0], together)
    assert asked == [True, False]


def test_the_gradient_of_relu_and_batch_norm_does_not_read_its_result() -> None:
    saved = dict.fromkeys(("scale", "bias", "saved_mean", "saved_variance", "d_scale", "d_bias"), C)
    steps, _ = made_of(
        "fused_batch_norm_act_grad", x=IMAGE, y=IMAGE, d_y=IMAGE, d_x=IMAGE, **saved, attrs={}
    )
    (graph,) = graphs_of(steps)
    assert isinstance(graph, BatchNormGrad) and graph.relu and len(steps) == 1


def test_a_mask_is_written_and_read_or_neither(monkeypatch: pytest.MonkeyPatch) -> None:
    """Both ways give the same bits: of relu's gradient by a call of its own, and of one call from the mask."""
    op, exact, attrs = drawn("masked_bn_add_activation", 0, "float64")
    how = on(layout=CHANNELS_LAST)
    low = rounded(exact, BFLOAT16, APART)
    seeds = rounded(seeds_of(op, run(op, exact, attrs)), BFLOAT16, APART)

    def both(only: str | None = None) -> Arrays:
        return gradients(op, low, run(op, low, attrs, **how), seeds, attrs, only=only, **how)

    dnn = type(gpu().runtime.dnn)
    plain, bind_plain = dnn.workspace, dnn.bind
    calls: list[Graph] = []

    def recorded(self: Any, graph: Graph, arrays: Any, workspace: Any) -> Step:
        calls.append(graph)
        return bind_plain(self, graph, arrays, workspace)

    monkeypatch.setattr(dnn, "bind", recorded)
    together = both()
    norm, slope = calls
    assert isinstance(norm, BatchNorm) and norm.masks
    assert isinstance(slope, BatchNormGrad) and slope.masked and slope.forks
    np.testing.assert_array_equal(both("Z")["Z"][0], together["Z"][0])
    calls.clear()
    # cuDNN has a plan that writes a mask, and none that reads it.
    monkeypatch.setattr(
        dnn,
        "workspace",
        lambda self, graph: None if getattr(graph, "masked", False) else plain(self, graph),
    )
    apart = both()
    assert [getattr(g, "masks", False) or getattr(g, "masked", False) for g in calls] == [False] * 2
    for slot, arrays in together.items():
        np.testing.assert_array_equal(arrays[0], apart[slot][0], err_msg=slot)


def test_what_cudnn_declines_is_left_to_the_next_library(monkeypatch: pytest.MonkeyPatch) -> None:
    dev = gpu()
    assert dev.runtime is not None
    monkeypatch.setattr(type(dev.runtime.dnn), "workspace", lambda self, graph: None)
    for name, kind in (("conv2d", "float32"), ("fused_batch_norm_act", "float32")):
        op, inputs, attrs = drawn(name, 0, kind)
        outputs = run(op, inputs, attrs, **on(layout=CHANNELS_LAST))
        for slot, values in reference_of(op, inputs, attrs).items():
            close(outputs[slot][0], values[0], 1e-5, slot)
        reads = {
            s: [device_array(dev.cuda, a.shape, a.dtype) for a in v] for s, v in inputs.items()
        }
        specs = infer(op, specs_of(reads), attrs)
        writes = {
            s: [device_array(dev.cuda, tuple(t.shape), to_numpy(t.dtype)) for t in v]
            for s, v in specs.items()
        }
        steps = bind(name, reads, writes, attrs, dev, "cudnn")
        assert all(graph_can_hold(step, dev.xp) for step in steps), "CuPy would split the graph"


def test_gradients_in_a_bucket_may_begin_anywhere(monkeypatch: pytest.MonkeyPatch) -> None:
    """cuDNN's plans read and write 16 bytes at a time; a gradient may begin behind one of ten elements."""
    op, dev, operands = OPS["conv2d_grad"], gpu(), list[int]()
    dnn = type(dev.cuda.dnn)
    plain = dnn.bind

    def noted(self: Any, graph: Any, arrays: Any, workspace: Any) -> Any:
        operands.extend(map(dev.cuda.address, arrays.values()))
        return plain(self, graph, arrays, workspace)

    monkeypatch.setattr(dnn, "bind", noted)
    rng = np.random.default_rng(0)
    x, w, d_y = (
        rng.standard_normal(s).astype("f4") for s in ((2, 3, 4, 4), (5, 3, 1, 1), (2, 5, 4, 4))
    )
    assert dev.runtime is not None
    rooms = [dev.runtime.empty(4096).view(np.float32) for _ in range(3)]
    apart = [h[10 : 10 + a.size].reshape(a.shape) for h, a in zip(rooms, (x, w, d_y), strict=True)]
    for near, values in zip(apart, (x, w, d_y), strict=True):
        near[...] = dev.xp.asarray(values)
    buckets = [dev.runtime.empty(4096).view(np.float32) for _ in range(2)]
    d_x, d_w = (m[10 : 10 + a.size].reshape(a.shape) for m, a in zip(buckets, (x, w), strict=True))
    reads = dict(zip(("Input", "Filter", "Output@GRAD"), ([a] for a in apart), strict=True))
    writes = {"Input@GRAD": [d_x], "Filter@GRAD": [d_w]}
    steps = bind("conv2d_grad", reads, writes, op.attrs, dev, "cudnn")
    assert [type(g) for g in graphs_of(steps)] == [Convolution] * 2
    assert len(operands) == 6 and not any(at % 16 for at in operands)
    dev.runtime.execute(steps)
    dev.runtime.synchronize()
    np.testing.assert_allclose(home(d_w)[..., 0, 0], np.einsum("nohw,nchw->oc", d_y, x), rtol=1e-4)
    np.testing.assert_allclose(
        home(d_x), np.einsum("nohw,oc->nchw", d_y, w[..., 0, 0]), rtol=1e-4, atol=1e-5
    )


def test_arrays_without_elements_are_left_to_others() -> None:
    op = OPS["conv2d"]
    inputs = {"Input": [np.zeros((0, 3, 4, 4), "f4")], "Filter": [np.ones((2, 3, 1, 1), "f4")]}
    assert run(op, inputs, op.attrs, **on())["Output"][0].shape == (0, 2, 4, 4)
    seeds = {"Output": [np.zeros((0, 2, 4, 4), "f4")]}
    slopes = gradients(op, inputs, {}, seeds, op.attrs, **on())
    assert not slopes["Filter"][0].any()


def test_attention_that_drops_or_is_exact_is_left_to_others() -> None:
    takes = KERNELS[ATTENTION, "cudnn"].takes
    assert takes is not None

    def taken(kind: VarType, width: int = 8, **dropout: Any) -> bool:
        spec = Spec((-1, 2, 4, width), kind)
        inputs = {slot: (Value(slot, spec),) for slot in "QKV"}
        attrs = {**OPS[ATTENTION].attrs, "dropout": {**NO_DROPOUT, **dropout}}
        return takes(Node(ATTENTION, inputs, {"Out": (Value("Out", spec),)}, attrs))

    assert taken(VarType.BF16) and taken(VarType.FP16)
    assert not taken(VarType.FP32)
    assert not taken(VarType.BF16, width=4)
    assert not taken(VarType.BF16, dropout_prob=0.1)
    assert not taken(VarType.BF16, dropout_prob=0.1, is_test=True)  # weights are scaled down
    assert not taken(VarType.BF16, dropout_prob=0.1, by_library=True)
    assert not taken(VarType.BF16, **{**DROPPED, "dropout_prob": 1.0})
    assert taken(VarType.BF16, **DROPPED) and taken(VarType.BF16, **DROPPED, is_test=True)
    assert not taken(VarType.FP32, **DROPPED)


DROPPED = {"dropout_prob": 0.25, "dropout_implementation": "upscale_in_train", "by_library": True}


def double(array: Any) -> Any:
    return np.asarray(array, "f8")


def attended(step: int, row: int, q: Any, k: Any, v: Any, **settings: Any) -> tuple[Any, Any]:
    """Return attention whose weights the library drops, and its gradients where Out's is a unit matrix."""
    op, dev = OPS[ATTENTION], gpu()
    assert isinstance(dev.memory, DeviceMemory)
    attrs = {**op.attrs, "dropout": {**NO_DROPOUT, **DROPPED, "name": "w", **settings}}
    inputs = {"Q": [q], "K": [k], "V": [v]}
    dev.memory.tick(step, row)
    try:
        out = run(op, inputs, attrs, **on())
        seeds = {"Out": [np.broadcast_to(np.eye(16, 8), out["Out"][0].shape).astype(q.dtype)]}
        return out["Out"][0], gradients(op, inputs, out, seeds, attrs, **on())
    finally:
        dev.memory.tick(0, 0)


def test_cudnn_drops_weights_by_the_step_and_the_gradient_drops_the_same() -> None:
    """Of 16 queries and 8 keys; with the unit matrix for V, Out is the weights."""
    rng = np.random.default_rng(0)
    q, k, v = (rng.standard_normal((2, 4, n, 8)).astype("f2") for n in (16, 8, 8))
    unit = np.broadcast_to(np.eye(8), v.shape).astype("f2")
    weights, slopes = attended(3, 5, 0 * q, k, unit)
    nonzero = double(weights) > 0
    np.testing.assert_allclose(weights[nonzero], 1 / 8 / 0.75, rtol=1e-3)  # all scores are alike
    assert 0.65 < nonzero.mean() < 0.85, "a quarter of 1,024"
    turned = double(weights).swapaxes(2, 3)
    np.testing.assert_allclose(slopes["V"][0], turned @ np.eye(16, 8), rtol=1e-3)

    out, slopes = attended(3, 5, q, k, v)  # the same numbers, whatever the operands
    scores = np.exp(double(q) @ double(k).swapaxes(2, 3))
    plain = scores / scores.sum(3, keepdims=True)
    np.testing.assert_allclose(out, (plain * nonzero / 0.75) @ double(v), rtol=2e-2, atol=2e-2)
    d_weights = (np.eye(16, 8) @ double(v).swapaxes(2, 3)) * nonzero / 0.75
    d_scores = plain * (d_weights - (plain * d_weights).sum(3, keepdims=True))
    np.testing.assert_allclose(slopes["Q"][0], d_scores @ double(k), rtol=2e-2, atol=2e-2)
    np.testing.assert_allclose(
        slopes["K"][0], d_scores.swapaxes(2, 3) @ double(q), rtol=2e-2, atol=4e-2
    )

    def marks(step: int, row: int, **settings: Any) -> Any:
        return double(attended(step, row, 0 * q, k, unit, **settings)[0]) > 0

    assert (marks(3, 5) == nonzero).all(), "a step that is run again"
    assert (marks(3, 5, is_test=True)).all()
    for step, row, name in ((4, 5, "w"), (3, 6, "w"), (3, 5, "other")):
        assert not (marks(step, row, name=name) == nonzero).all(), "another step, replica or op"
    fixed = {"seed": 9, "fix_seed": True}
    assert (marks(3, 5, **fixed) == marks(4, 5, **fixed)).all()


@pytest.mark.skipif(not nvrtc.version(), reason="NVRTC is not installed")
def test_kernels_beside_cudnn_compile_for_a_gpu() -> None:
    q, k = np.ones((2, 4, 16, 8), "f2"), np.ones((2, 4, 8, 8), "f2")
    norm = dict.fromkeys(("scale", "bias", "mean", "variance", "mean_out", "variance_out"), C)
    saved = dict.fromkeys(("saved_mean", "saved_variance"), C)
    with collected() as kernels:
        attended(0, 0, q, k, k)
        made_of("batch_norm", x=IMAGE, y=IMAGE, **norm, **saved, attrs={})
    by_name = {kernel.name: kernel for kernel in kernels.values()}
    for name in ("ones", "logarithms", "seed_of_step", "running_statistics"):
        assert nvrtc.machine_code(by_name[name], (9, 0))
