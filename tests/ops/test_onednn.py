"""Walks the samples of every op that oneDNN computes: both layouts, with gradients, against the reference."""

from __future__ import annotations

import gc
import weakref
from collections import deque
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import numpy as np
import pytest

from rowlock.executor.device.device import Device
from rowlock.executor.kernels.capabilities import installed
from rowlock.executor.kernels.onednn import primitive
from rowlock.executor.kernels.onednn.library import Handle, library
from rowlock.executor.kernels.onednn.linear import product
from rowlock.executor.kernels.onednn.primitive import PRIMITIVE_BYTES, SUM, Primitive, dense
from rowlock.executor.kernels.registry import KERNELS, bind
from rowlock.graph.ir.capabilities import CHANNELS_LAST, IN_ORDER
from rowlock.graph.ir.graph import Node, Value
from rowlock.graph.ops.registry import OPS, Op
from rowlock.strategies.types import BFLOAT16
from tests.conftest import one_in
from tests.ops.harness import Arrays, draw, gradients, infer, run, specs_of
from tests.ops.test_conformance import CASES, reference_of, seeds_of

pytestmark = pytest.mark.skipif(library() is None, reason="oneDNN is not installed")
dnnl = library()
rounding = pytest.mark.skipif(not (dnnl and dnnl.rounds), reason="no products in bfloat16 here")
SAMPLES = [(name, i) for name, i in CASES if (name, "onednn") in KERNELS]
LAYOUTS = [IN_ORDER, CHANNELS_LAST]
# Which layout a sample has depends on the seed, or it has both, or none.
LAID = [(*sample, layout) for sample in SAMPLES for layout in LAYOUTS]
ONEDNN: dict[str, Any] = {"back_end": "onednn"}


def taken(op: Op, inputs: Arrays, attrs: dict[str, Any]) -> bool:
    """Tell whether the kernel takes the node that computes this."""
    specs = specs_of(inputs)
    reads = {s: tuple(Value(s, spec) for spec in many) for s, many in specs.items()}
    makes = infer(op, specs, attrs)
    writes = {s: tuple(Value(s, spec) for spec in many) for s, many in makes.items()}
    kernel = KERNELS[op.type, "onednn"]
    takes, here = kernel.takes, installed().keys() >= set(kernel.needs)
    return here and (takes is None or takes(Node(op.type, reads, writes, attrs)))


def drawn(name: str, index: int) -> tuple[Op, Arrays, dict[str, Any]]:
    op = OPS[name]
    inputs, attrs = draw(op, op.samples[index], "float32")
    if not taken(op, inputs, attrs):
        pytest.skip("left to NumPy")
    return op, inputs, attrs


@pytest.mark.parametrize(("name", "index", "layout"), one_in(2, LAID, more=0))
def test_kernel_agrees_with_the_reference(name: str, index: int, layout: str) -> None:
    op, inputs, attrs = drawn(name, index)
    outputs = run(op, inputs, attrs, layout=layout, **ONEDNN)
    for slot, values in reference_of(op, inputs, attrs).items():
        for array, value in zip(outputs[slot], values, strict=True):
            np.testing.assert_allclose(array, value, rtol=2e-5, atol=2e-5, err_msg=slot)


@pytest.mark.parametrize(
    ("name", "index", "layout"), one_in(2, [laid for laid in LAID if OPS[laid[0]].grad], more=0)
)
def test_gradients_agree_with_those_in_double_precision(name: str, index: int, layout: str) -> None:
    op, inputs, attrs = drawn(name, index)
    assert op.grad is not None
    assert (op.grad.type, "onednn") in KERNELS
    exact, _ = draw(op, op.samples[index], "float64")
    outputs = run(op, exact, attrs)
    seeds = seeds_of(op, outputs)
    expected = gradients(op, exact, outputs, seeds, attrs)
    single = [{s: [a.astype("f4") if a.dtype.kind == "f" else a for a in many] for s, many in arrays.items()}
              for arrays in (inputs, outputs, seeds)]  # fmt: skip
    slopes = gradients(op, *single, attrs, layout=layout, **ONEDNN)
    for slot, grads in slopes.items():
        alone = gradients(op, *single, attrs, only=slot, layout=layout, **ONEDNN)[slot]
        for one, other, value in zip(grads, alone, expected[slot], strict=True):
            np.testing.assert_allclose(one, value, rtol=1e-4, atol=1e-4, err_msg=slot)
            np.testing.assert_array_equal(one, other, err_msg=slot)
    if OPS[op.grad.type].in_place:
        instead = gradients(op, *single, attrs, overwrite=True, layout=layout, **ONEDNN)
        for slot, grads in slopes.items():
            for one, other in zip(grads, instead[slot], strict=True):
                np.testing.assert_array_equal(one, other, err_msg=slot)


@pytest.mark.parametrize("layout", LAYOUTS)
@pytest.mark.parametrize(("name", "index"), [(n, i) for n, i in SAMPLES if OPS[n].in_place])
def test_outputs_may_take_the_place_of_operands(name: str, index: int, layout: str) -> None:
    op, inputs, attrs = drawn(name, index)
    beside = run(op, inputs, attrs, layout=layout, **ONEDNN)
    instead = run(op, inputs, attrs, overwrite=True, layout=layout, **ONEDNN)
    for slot, arrays in beside.items():
        for one, other in zip(arrays, instead[slot], strict=True):
            np.testing.assert_array_equal(one, other)


@pytest.mark.parametrize("layout", LAYOUTS)
@pytest.mark.parametrize("global_stats", [False, True], ids=["of the batch", "kept"])
@pytest.mark.parametrize("channels", [4, 8, 14, 16])
def test_batch_norm_by_its_channels(channels: int, global_stats: bool, layout: str) -> None:
    """The library has other code for fours, eights and sixteens; what it writes badly goes another way."""
    op, rng = OPS["batch_norm"], np.random.default_rng(7)
    attrs = {**op.attrs, "use_global_stats": global_stats}
    rows = {
        slot: [rng.random(channels, np.float32) + 0.5]
        for slot in ("Scale", "Bias", "Mean", "Variance")
    }
    inputs = {"X": [rng.standard_normal((2, channels, 5, 3), np.float32)], **rows}
    results = run(op, inputs, attrs, layout=layout, **ONEDNN)
    plain = run(op, inputs, attrs)
    for slot, values in plain.items():
        for array, value in zip(results[slot], values, strict=True):
            np.testing.assert_allclose(array, value, rtol=2e-5, atol=2e-5, err_msg=slot)
    seeds = {slot: [a.astype("f4") for a in arrays] for slot, arrays in seeds_of(op, plain).items()}
    slopes = gradients(op, inputs, plain, seeds, attrs, layout=layout, **ONEDNN)
    for slot, values in gradients(op, inputs, plain, seeds, attrs).items():
        for array, value in zip(slopes[slot], values, strict=True):
            np.testing.assert_allclose(array, value, rtol=1e-4, atol=1e-4, err_msg=slot)


def test_what_is_not_a_number_stays_so() -> None:
    """A run that diverged must be seen to: relu and what is fused with it hide nothing."""
    for name in ("fused_gemm_epilogue", "fused_batch_norm_act", "fused_bn_add_activation"):
        op, inputs, attrs = drawn(name, 0)
        inputs["X"][0].fill(np.nan)
        attrs["activation" if "activation" in attrs else "act_type"] = "relu"
        outs = run(op, inputs, attrs, **ONEDNN)
        assert np.isnan(outs["Out" if "Out" in outs else "Y"][0]).all(), name
    for name in ("pool2d", "gelu", "sigmoid", "tanh"):
        op, inputs, attrs = drawn(name, 0)
        inputs["X"][0].fill(np.nan)
        outs = run(op, inputs, attrs, **ONEDNN)["Out"][0]
        assert not (np.abs(outs) < 1e38).any(), name  # the maximum of nothing is the least number


def test_a_cell_that_is_not_a_number_stays_so_through_relu() -> None:
    op, inputs, attrs = drawn("lstm", 0)
    inputs["Input"][0].fill(np.nan)
    activations = ("gate_activation", "cell_activation", "candidate_activation")
    attrs |= dict.fromkeys(activations, "relu")
    assert np.isnan(run(op, inputs, attrs, **ONEDNN)["Hidden"][0]).all()


def test_half_and_double_precision_are_left_to_numpy() -> None:
    op = OPS["mul"]
    for dtype in ("float64", "float16"):
        inputs, attrs = draw(op, op.samples[0], dtype)
        assert not taken(op, inputs, attrs)


@pytest.mark.parametrize("name", ["fused_gemm_epilogue"])
def test_what_nobody_wants_is_not_kept(name: str) -> None:
    for index in range(len(OPS[name].samples)):
        op, inputs, attrs = drawn(name, index)
        outputs = run(op, inputs, attrs, wanted=lambda slot: slot == "Out", **ONEDNN)
        (value,) = reference_of(op, inputs, attrs)["Out"]
        np.testing.assert_allclose(outputs["Out"][0], value, rtol=2e-5, atol=2e-5)


PRODUCTS = [(n, i) for n, i in SAMPLES if n in ("conv2d", "depthwise_conv2d", "mul", "matmul")]


_STACK = np.random.default_rng(2).standard_normal((3, 4, 16, 24)).astype("f4")


@rounding
@pytest.mark.parametrize(
    ("factor", "strides"),
    [
        (_STACK[0, 0], (24, 1)),
        (_STACK[0, 0].T, (1, 24)),
        (_STACK[0].swapaxes(1, 2), (384, 1, 24)),
        (_STACK[:, 1, :, 8:16], (128, 8, 1)),
        (_STACK[:, :, :, :1].transpose(0, 3, 2, 1), (64, 1, 1, 16)),
        (np.broadcast_to(_STACK[0, 0], (3, 16, 24)), None),
    ],
)
def test_a_rounded_factor_keeps_its_order_without_gaps(factor: Any, strides: Any) -> None:
    """A copy that transposes takes as long as the product: an eighth of a step of gpt."""
    layout = dense(factor, "bfloat16")
    assert strides is None or layout.strides == strides
    other = np.random.default_rng(3).standard_normal((factor.shape[-1], 5)).astype("f4")
    result = np.empty((*factor.shape[:-1], 5), "f4")
    for call in product(Device(math="bfloat16"), factor, other, result):
        call()
    near = to_bfloat16(factor) @ to_bfloat16(other)
    np.testing.assert_allclose(result, near, rtol=2e-5, atol=2e-5)


@rounding
@pytest.mark.parametrize("layout", LAYOUTS)
@pytest.mark.parametrize(("name", "index"), PRODUCTS)
def test_products_in_bfloat16_are_those_of_rounded_factors(
    name: str, index: int, layout: str
) -> None:
    op, inputs, attrs = drawn(name, index)
    how: dict[str, Any] = {"dev": Device(math="bfloat16"), "layout": layout, **ONEDNN}
    exact = run(op, inputs, attrs, layout=layout, **ONEDNN)
    results = run(op, inputs, attrs, **how)
    near = run(op, rounded(inputs), attrs)
    for slot, arrays in results.items():
        for array, value, same in zip(arrays, near[slot], exact[slot], strict=True):
            np.testing.assert_allclose(array, value, rtol=2e-5, atol=2e-5)
            assert not np.array_equal(array, same)
    seeds = {s: [a.astype("f4") for a in many] for s, many in seeds_of(op, exact).items()}
    slopes = gradients(op, inputs, exact, seeds, attrs, **how)
    expected = gradients(op, rounded(inputs), exact, rounded(seeds), attrs)
    for slot, grads in slopes.items():
        for array, value in zip(grads, expected[slot], strict=True):
            np.testing.assert_allclose(array, value, rtol=2e-5, atol=2e-5, err_msg=slot)


@rounding
@pytest.mark.parametrize(("name", "index"), [(n, i) for n, i in PRODUCTS if "conv" not in n])
def test_factors_that_lie_in_bfloat16_give_the_same_bits(name: str, index: int) -> None:
    op, inputs, attrs = drawn(name, index)
    how: dict[str, Any] = {"dev": Device(math="bfloat16"), **ONEDNN}
    low = {slot: [array.astype(BFLOAT16) for array in many] for slot, many in inputs.items()}
    (expected,) = run(op, inputs, attrs, **how)["Out"]
    result = np.empty_like(expected)
    for call in bind(op.type, low, {"Out": [result]}, attrs, how["dev"], "onednn"):
        call()
    np.testing.assert_array_equal(result, expected)


def to_bfloat16(array: Any) -> Any:
    """Round to the nearest number that bfloat16 holds, ties to even."""
    bits = array.view(np.uint32)
    high = (bits + 0x7FFF + ((bits >> 16) & 1)) & np.uint32(0xFFFF0000)
    return high.view(np.float32)


def rounded(operands: dict[str, Any]) -> dict[str, Any]:
    """Round all arrays, by slot."""
    return {slot: [to_bfloat16(a) for a in many] for slot, many in operands.items()}


@pytest.fixture
def compiled(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """What primitives are compiled in a test, as they say."""
    names: list[str] = []
    make = Primitive.__init__

    def note(self: Primitive, kind: str, *arguments: Any, **more: Any) -> None:
        names.append(kind)
        make(self, kind, *arguments, **more)

    monkeypatch.setattr(Primitive, "__init__", note)
    return names


def test_one_primitive_multiplies_matrices_of_any_size(compiled: list[str]) -> None:
    """Transposed, in stacks, with gaps between rows, with a bias and what follows."""
    rng, dev = np.random.default_rng(3), Device()
    dev.next_instruction("out", uneven=True)
    counts = []
    for rows in (1, 7, 130, 64):
        x, y, z, w = (
            rng.standard_normal(shape).astype("float32")
            for shape in ((rows, 33), (rows, 128), (3, rows, 33), (33, 128))
        )
        bias, padded = w[0], np.zeros((rows, 150), "float32")
        stacked, wide = np.empty((3, rows, 128), "float32"), np.empty((33, 128), "float32")
        out = padded[:, 3:131]
        cases: list[tuple[list[Any], Any, Any]] = [
            (product(dev, x, w, out), out, x @ w),
            (product(dev, x.T, y, wide), wide, x.T @ y),
            (product(dev, z, w, stacked), stacked, z @ w),
            (product(dev, z.swapaxes(1, 2), y[None], many := np.empty((3, 33, 128), "f4")), many,
             z.swapaxes(1, 2) @ y),
            (product(dev, x, w, act := np.empty((rows, 128), "f4"), bias=bias,
                     post_ops=(("tanh", 0.0, 0.0),)), act, np.tanh(x @ w + bias)),
        ]  # fmt: skip
        for steps, result, expected in cases:
            for step in steps:
                step()
            np.testing.assert_allclose(result, expected, rtol=1e-4, atol=1e-4)
        assert not padded[:, :3].any() and not padded[:, 131:].any()
        counts.append(len(compiled))
    assert len(set(counts[1:])) == 1, "a single row lies as a column does"


@pytest.mark.parametrize("rows", [1, 2, 33])
@pytest.mark.parametrize("columns", [1, 5, 130])
def test_uneven_products_compile_nothing(rows: int, columns: int, compiled: list[str]) -> None:
    """By rows, by columns, with gaps, scaled and added to the result, into columns of another matrix."""
    rng, dev = np.random.default_rng(3), Device()
    dev.next_instruction("out", uneven=True)
    x, y = (rng.standard_normal(shape).astype("f4") for shape in ((rows, 7), (7, columns)))
    wide = np.ones((rows, columns + 9), "f4")
    for left in (x, np.asfortranarray(x), np.repeat(x, 2, 0)[::2], np.repeat(x, 2, 1)[:, :7]):
        for right in (y, np.asfortranarray(y)):
            for out in (
                np.ones((rows, columns), "f4"),
                np.ones((columns, rows), "f4").T,
                wide[:, 4:-5],
            ):
                for post_ops, alpha, beta in (
                    ((), 1, 0),
                    ((("linear", -0.5, 0.0),), -0.5, 0),
                    ((SUM,), 1, 1),
                ):
                    out[...] = 1
                    for step in product(dev, left, right, out, post_ops=post_ops):
                        step()
                    np.testing.assert_allclose(
                        out, alpha * (left @ right) + beta, rtol=1e-4, atol=1e-4
                    )
    assert (wide[:, :4] == 1).all() and (wide[:, -5:] == 1).all()
    assert not compiled


def test_primitives_live_as_long_as_their_calls(monkeypatch: pytest.MonkeyPatch) -> None:
    """Beside the latest. The first device to call one counts its bytes."""
    monkeypatch.setattr(primitive, "_latest", deque(maxlen=1))
    alive: weakref.WeakSet[Primitive] = weakref.WeakSet()
    make = Primitive.__init__

    def note(self: Primitive, kind: str, *arguments: Any, **more: Any) -> None:
        alive.add(self)
        make(self, kind, *arguments, **more)

    monkeypatch.setattr(Primitive, "__init__", note)

    def steps(dev: Device, rows: int) -> tuple[list[Any], Any]:
        out = np.zeros((rows, 3), "f4")
        return product(dev, np.ones((rows, 1117), "f4"), np.ones((1117, 3), "f4"), out), out

    first, second = Device(), Device()
    (call, *_), out = steps(first, 5)
    others = [steps(second, rows) for rows in (5, 6, 7)]
    gc.collect()
    assert len(alive) == 3
    assert (first.compiled_bytes, second.compiled_bytes) == (PRIMITIVE_BYTES, 2 * PRIMITIVE_BYTES)
    others.clear()
    gc.collect()
    assert len(alive) == 2, "that of the first device, and the latest"
    call()
    np.testing.assert_array_equal(out, 1117)


def test_threads_share_what_is_compiled() -> None:
    """Each binding has memory of its own, so plans and lanes may run one primitive at once."""
    rng = np.random.default_rng(0)
    pairs = [rng.standard_normal((2, 96, 96)).astype("f4") for _ in range(4)]
    outs = [np.zeros((96, 96), "f4") for _ in pairs]

    def work(k: int) -> None:
        (x, y), attrs = pairs[k], OPS["mul"].attrs
        (step,) = bind("mul", {"X": [x], "Y": [y]}, {"Out": [outs[k]]}, attrs, Device(), "onednn")
        for _ in range(50):
            outs[k].fill(0)
            step()

    with ThreadPoolExecutor(4) as pool:
        list(pool.map(work, range(4)))
    for (x, y), out in zip(pairs, outs, strict=True):
        np.testing.assert_allclose(out, x @ y, rtol=1e-4, atol=1e-4)


def test_nothing_is_left_of_plans_that_are_gone() -> None:
    x, y, out = (np.zeros((4, 4), "f4") for _ in range(3))
    slots = ({"X": [x], "Y": [y]}, {"Out": [out]}, OPS["mul"].attrs)

    def held() -> int:
        gc.collect()
        return sum(issubclass(type(o), Handle) for o in gc.get_objects())

    bind("mul", *slots, Device(), "onednn")
    before = held()
    for _ in range(1000):
        bind("mul", *slots, Device(), "onednn")
    assert held() <= before


@pytest.mark.parametrize("shape", [(4, 16, 1, 50), (3, 5, 7, 9), (2, 3, 2, 4, 3), (5, 16, 1, 1)])
def test_the_largest_of_channels_compiles_nothing_where_sizes_are_uneven(
    shape: tuple[int, ...], compiled: list[str]
) -> None:
    """It has the bits of the library's pools, whichever of several largest elements is the first."""
    rng, last = np.random.default_rng(3), (0, *range(2, len(shape)), 1)
    x = np.maximum(np.rint(rng.standard_normal(shape) * 2), 0).astype("f4")
    x = np.ascontiguousarray(x.transpose(last)).transpose(0, -1, *range(1, len(shape) - 1))
    d_out = rng.standard_normal((*shape[:2], *[1] * (len(shape) - 2))).astype("f4")
    d_out[0, 0] = -0.0
    op, results = f"pool{len(shape) - 2}d", {}
    attrs = {"pooling_type": "max", "global_pooling": True, "ksize": [1] * (len(shape) - 2)}
    for uneven in (False, True):
        dev, out, d_x = Device(), np.full_like(d_out, 7), np.full_like(x, 7)
        dev.next_instruction("out", uneven=uneven)
        compiled.clear()
        grads = {"X": [x], "Out": [out], "Out@GRAD": [d_out]}
        for step in bind(op, {"X": [x]}, {"Out": [out]}, {**OPS[op].attrs, **attrs}, dev, "onednn"):
            step()
        attributes = {**OPS[f"{op}_grad"].attrs, **attrs}
        for step in bind(f"{op}_grad", grads, {"X@GRAD": [d_x]}, attributes, dev, "onednn"):
            step()
        results[uneven] = out.tobytes(), d_x.tobytes()
    assert results[True] == results[False] and not compiled
