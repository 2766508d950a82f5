"""Walks the samples of all ops that generated elementwise CUDA kernels compute, and tries their loops."""

from __future__ import annotations

from typing import Any

import ml_dtypes
import numpy as np
import pytest

from rowlock.executor.codegen.cuda_loops import bind_cuda, fill
from rowlock.executor.codegen.cuda_nest import Nest
from rowlock.executor.codegen.cuda_source import CudaWriter, Value, known
from rowlock.executor.cuda import nvrtc
from rowlock.executor.cuda.kernel import CudaKernel
from rowlock.executor.kernels.registry import KERNELS
from rowlock.graph.ops import expr as e
from rowlock.graph.ops.registry import OPS
from tests.conftest import one_of_each
from tests.ops.cuda_cases import CUDA, NEAR, taken
from tests.ops.gpu import assert_compile_for_a_gpu, collected, gpu, needs_compiler
from tests.ops.harness import draw, gradients, run
from tests.ops.test_conformance import CASES, reference_of, seeds_of

pytestmark = [needs_compiler, pytest.mark.usefixtures("launched")]
HERE = (
    "loops.elementwise",
    "loops.fusion",
    "cuda.elementwise",
    "cuda.creation",
)
X, Y, D = map(e.argument, "xyd")


def ours(name: str) -> bool:
    kernel = KERNELS.get((name, "cuda"))
    return kernel is not None and kernel.function.__module__.endswith(HERE)


def taken_here(name: str, index: int) -> bool:
    """Tell whether a kernel of these computes a sample."""
    op = OPS[name]
    return ours(name) and taken(op, *draw(op, op.samples[index], "float32"))


SAMPLES = [(n, i) for n, i in CASES if taken_here(n, i)]
SLOPES = [(n, i) for n, i in SAMPLES
          if (grad := OPS[n].grad) and ours(grad.type) and (n, i) != ("cast", 1)]  # fmt: skip
# One of each kind of function, for the element types whose text differs in nothing else.
FEW = [
    ("gelu", 0), ("softplus", 0), ("elementwise_mod", 2), ("elementwise_pow", 1), ("leaky_relu", 0),
    ("round", 0), ("cast", 0), ("sum", 0), ("less_than", 1), ("fused_elemwise_activation", 0),
]  # fmt: skip


def near(array: Any, expected: Any, tolerance: float, what: str) -> None:
    """Compare by the scale of what is expected; what is not finite must be the same."""
    assert array.shape == expected.shape
    exact = np.asarray(expected, "f8")
    scale = np.abs(exact[np.isfinite(exact)]).max(initial=1e-30)
    np.testing.assert_allclose(
        np.asarray(array, "f8"), exact, tolerance, tolerance * scale, err_msg=what
    )


@pytest.mark.parametrize(("name", "index"), one_of_each(SAMPLES, 3))
def test_kernel_agrees_with_the_reference(name: str, index: int) -> None:
    op = OPS[name]
    inputs, attrs = draw(op, op.samples[index], "float32")
    outputs = run(op, inputs, attrs, dev=gpu(), **CUDA)
    for slot, values in reference_of(op, inputs, attrs).items():
        for array, value in zip(outputs[slot], values, strict=True):
            near(array, np.asarray(value), 1e-5, slot)


@pytest.mark.parametrize(("position", "name", "index"), [(i, *case) for i, case in enumerate(FEW)])
def test_other_element_types_agree_with_the_reference(position: int, name: str, index: int) -> None:
    """Each op in double precision and in one of low precision: those share all but load and store."""
    op = OPS[name]
    for dtype in ("float64", ("float16", "bfloat16")[position % 2]):
        inputs, attrs = draw(op, op.samples[index], dtype)
        outputs = run(op, inputs, attrs, dev=gpu(), **CUDA)
        for slot, values in reference_of(op, inputs, attrs).items():
            for array, value in zip(outputs[slot], values, strict=True):
                near(array, np.asarray(value), NEAR[dtype], slot)


@pytest.mark.parametrize(("name", "index"), one_of_each(SLOPES, 3))
def test_gradients_agree_with_those_in_double_precision(name: str, index: int) -> None:
    op = OPS[name]
    inputs, attrs = draw(op, op.samples[index], "float32")
    exact = {
        s: [a.astype("f8") if a.dtype.kind == "f" else a for a in v] for s, v in inputs.items()
    }
    outputs = run(op, exact, attrs)
    seeds = seeds_of(op, outputs)
    expected = gradients(op, exact, outputs, seeds, attrs)
    single = [{s: [a.astype("f4") if a.dtype.kind == "f" else a for a in v] for s, v in many.items()}
              for many in (inputs, outputs, seeds)]  # fmt: skip
    slopes = gradients(op, *single, attrs, dev=gpu(), **CUDA)
    for slot, grads in slopes.items():
        for one, value in zip(grads, expected[slot], strict=True):
            near(one, value, 1e-5, slot)


@pytest.mark.parametrize(
    "name", ["elementwise_mul", "elementwise_div", "fused_elemwise_activation"]
)
def test_gradients_are_the_same_alone_and_in_place(name: str) -> None:
    op = OPS[name]
    inputs, attrs = draw(op, op.samples[0 if name.startswith("fused") else 2], "float32")
    outputs = run(op, inputs, attrs)
    operands = (inputs, outputs, seeds_of(op, outputs), attrs)
    whole = gradients(op, *operands, dev=gpu(), **CUDA)
    instead = gradients(op, *operands, overwrite=True, dev=gpu(), **CUDA)
    for slot in ("X", "Y"):
        alone = gradients(op, *operands, only=slot, dev=gpu(), **CUDA)
        np.testing.assert_array_equal(alone[slot][0], whole[slot][0])
        np.testing.assert_array_equal(instead[slot][0], whole[slot][0])


def test_results_may_take_the_place_of_operands() -> None:
    for name in ("relu", "scale", "elementwise_sub"):
        op = OPS[name]
        inputs, attrs = draw(op, op.samples[0], "float32")
        beside = run(op, inputs, attrs, dev=gpu(), **CUDA)["Out"][0]
        instead = run(op, inputs, attrs, overwrite=True, dev=gpu(), **CUDA)["Out"][0]
        np.testing.assert_array_equal(beside, instead)


# ---- the loops themselves --------------------------------------------------------------------------------


def evaluate(
    outputs: list[tuple[e.Expr, Any]], arrays: dict[str, Any], launches: int | None = None
) -> list[Any]:
    """Return what expressions make of arrays, written to memory like the given outputs, twice."""
    dev = gpu()
    assert dev.runtime is not None
    operands = {name: dev.xp.asarray(a) for name, a in arrays.items()}
    targets = [(root, dev.xp.asarray(out)) for root, out in outputs]
    steps = bind_cuda(dev, targets, operands)
    assert launches is None or len(steps) == launches
    rounds = []
    for _ in range(2):
        dev.runtime.execute(steps)
        dev.runtime.synchronize()
        rounds.append([a.copy() if isinstance(a, np.ndarray) else a.get() for _, a in targets])
    for one, other in zip(*rounds, strict=True):
        np.testing.assert_array_equal(one, other)
    return rounds[0]


def values(*shape: int, dtype: Any = "f4", seed: int = 0) -> Any:
    return np.random.default_rng(seed).standard_normal(shape).astype(dtype)


PRODUCT, TOTAL = X * Y, [(X * Y, "full"), (X * Y, "y")]


@pytest.mark.parametrize(
    ("x", "y"),
    [
        ((5003,), (1,)),  # flat, with a rest behind the last vector
        ((37, 64), (64,)),  # rows of whole vectors
        ((37, 65), (37, 1)),
        ((4, 5, 48), (5, 1)),  # channels
        ((3, 5, 7, 9), (1, 5, 1, 9)),
        ((2, 1, 6), (2, 4, 1)),
        ((900, 8), (8,)),  # sums in parts
        ((3, 9000), (3, 1)),
        ((2, 3, 5000), (1, 3, 1)),
        ((37, 3), (37, 1)),  # several sums to a block, of which the last has some
        ((513, 16), (513, 1)),
        ((5, 2, 7), (5, 1, 1)),
        ((300, 49), (300, 1)),
    ],
)
def test_operands_broadcast_and_results_are_summed(x: tuple[int, ...], y: tuple[int, ...]) -> None:
    a, b = values(*x), values(*y, seed=1)
    exact = a.astype("f8") * b
    whole = np.empty(exact.shape, "f4")
    axes = tuple(i for i in range(whole.ndim) if ((1,) * (whole.ndim - b.ndim) + b.shape)[i] == 1)
    full, part = evaluate([(PRODUCT, whole), (PRODUCT, np.empty_like(b))], {"x": a, "y": b})
    near(full, exact, 1e-6, "full")
    summed = exact.sum(axes, keepdims=True) if axes else exact
    near(part, summed.reshape(b.shape) if b.size == summed.size else b, 1e-5, "sum")


@pytest.mark.parametrize(("shape", "one"), [((4096, 64), (64,)), ((4096, 8), (4096, 1))])
def test_many_sums_take_turns_in_the_memory_of_a_block(
    shape: tuple[int, ...], one: tuple[int, ...]
) -> None:
    x = values(*shape, dtype=ml_dtypes.bfloat16)
    axis = 0 if len(one) == 1 else 1
    with collected() as kernels:
        outputs = [(X * float(k), np.empty(one, "f8" if k == 3 else "f4")) for k in range(24)]
        sums = evaluate(outputs, {"x": x})
    exact = x.astype("f8").sum(axis, keepdims=axis == 1)
    for k, total in enumerate(sums):
        np.testing.assert_allclose(total, exact * k, rtol=1e-3, atol=5e-2, err_msg=str(k))
    for kernel in kernels.values() if nvrtc.version() else ():
        assert nvrtc.machine_code(kernel, (9, 0))


def test_short_sums_share_the_threads_of_a_block(monkeypatch: pytest.MonkeyPatch) -> None:
    dev, launches = gpu(), []
    runtime = type(dev.cuda)
    launch = runtime.launch

    def noted(self: Any, kernel: CudaKernel, *others: Any) -> Any:
        launches.append(others[:2])
        return launch(self, kernel, *others)

    monkeypatch.setattr(runtime, "launch", noted)
    x, sums = dev.xp.zeros((1024, 16), "f4"), dev.xp.zeros((1024, 1), "f4")
    bind_cuda(dev, [(e.copy(X), sums)], {"x": x})
    assert launches == [((16, 1, 1), (4, 64, 1))]  # four threads load a row of four vectors


def test_a_result_in_the_place_of_what_is_summed_is_written_behind_all_sums() -> None:
    dev = gpu()
    values = np.arange(20, dtype="f4").reshape(4, 5)
    x, down, along = (
        dev.xp.asarray(a) for a in (values.copy(), np.zeros((1, 5), "f4"), np.zeros((4, 1), "f4"))
    )
    steps = bind_cuda(dev, [(e.copy(X), down), (X * 2.0, x), (e.copy(X), along)], {"x": x})
    dev.cuda.execute(steps)
    dev.cuda.synchronize()
    expected = (2 * values, values.sum(0, keepdims=True), values.sum(1, keepdims=True))
    for array, value in zip((x, down, along), expected, strict=True):
        np.testing.assert_array_equal(
            array if isinstance(array, np.ndarray) else array.get(), value
        )


def test_sums_over_different_dimensions_take_a_kernel_each() -> None:
    x = values(6, 5, 4)
    outputs = [(e.copy(X), np.empty(s, "f4")) for s in ((6, 1, 1), (1, 5, 1), (6, 5, 4), (1, 1, 1))]
    first, second, whole, total = evaluate(outputs, {"x": x}, launches=3)
    np.testing.assert_allclose(first, x.sum((1, 2), keepdims=True), rtol=1e-5)
    np.testing.assert_allclose(second, x.sum((0, 2), keepdims=True), rtol=1e-5)
    np.testing.assert_allclose(total, x.sum(keepdims=True), rtol=1e-5)
    np.testing.assert_array_equal(whole, x)


def test_arrays_lie_in_any_order() -> None:
    x, y = values(2, 3, 4, 5), values(3, 1, 1, seed=1)
    last = np.ascontiguousarray(x.transpose(0, 2, 3, 1)).transpose(0, 3, 1, 2)
    (same,) = evaluate([(PRODUCT, np.empty_like(last))], {"x": last, "y": y}, launches=1)
    (other,) = evaluate([(PRODUCT, np.empty(x.shape, "f4"))], {"x": last, "y": y}, launches=1)
    (gaps,) = evaluate([(PRODUCT, np.empty((2, 3, 4, 3), "f4"))], {"x": last[..., ::2], "y": y})
    np.testing.assert_array_equal(same, x * y)
    np.testing.assert_array_equal(other, x * y)
    np.testing.assert_array_equal(gaps, (x * y)[..., ::2])


def test_offsets_beyond_32_bits_have_their_own_kernels(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(Nest, "index", lambda self: "long long")
    x, y = values(37, 64), values(37, 1, seed=1)
    full, part = evaluate(
        [(PRODUCT, np.empty_like(x)), (PRODUCT, np.empty_like(y))], {"x": x, "y": y}
    )
    np.testing.assert_array_equal(full, x * y)
    np.testing.assert_allclose(part, (x * y).sum(1, keepdims=True), rtol=1e-4, atol=1e-5)
    (rows,) = evaluate([(X + Y, np.empty_like(x))], {"x": x, "y": y})
    np.testing.assert_array_equal(rows, x + y)


def test_low_precision_is_computed_in_float32_and_rounded_once() -> None:
    for dtype in (np.float16, ml_dtypes.bfloat16):
        x, y = values(33, 40, dtype=dtype), values(40, seed=1)
        wide = x.astype("f4")
        outputs = [((X * 1.001 + Y) - X, np.empty_like(x)), (e.copy(X), np.empty_like(y))]
        full, total = evaluate(outputs, {"x": x, "y": y}, launches=1)
        expected = (wide * np.float32(1.001) + y) - wide
        assert full.dtype == dtype
        near(full, expected.astype(dtype), 1e-6, str(dtype))
        np.testing.assert_allclose(total, wide.sum(0), rtol=1e-4, atol=1e-5)


def test_what_is_not_a_number_stays_so() -> None:
    x = np.array([np.nan, 1, -1, np.inf, -np.inf, 0, 2, np.nan], "f4")
    y = np.array([0, np.nan, 1, np.nan, 0, np.nan, np.inf, np.nan], "f4")
    roots = {
        "maximum": e.maximum(X, Y), "minimum": e.minimum(X, Y), "relu": e.maximum(X, 0), "sign": e.sign(X),
        "clip": e.minimum(e.maximum(X, -0.7), 0.7), "first": e.maximum(0, X), "isfinite": e.isfinite(X),
    }  # fmt: skip
    results = evaluate([(r, np.empty(8, "?" if n == "isfinite" else "f4")) for n, r in roots.items()],
                    {"x": x, "y": y}, launches=1)  # fmt: skip
    expected = [np.maximum(x, y), np.minimum(x, y), np.maximum(x, 0), np.sign(x),
                np.clip(x, np.float32(-0.7), np.float32(0.7)), np.maximum(x, 0), np.isfinite(x)]  # fmt: skip
    for one, other, name in zip(results, expected, roots, strict=True):
        np.testing.assert_array_equal(one, other, err_msg=name)


@pytest.mark.parametrize("dtype", ["int8", "uint8", "int32", "int64"])
def test_integers_are_computed_as_by_numpy(dtype: str) -> None:
    rng = np.random.default_rng(0)
    info = np.iinfo(dtype)
    x = rng.integers(info.min, info.max, 200, dtype)
    y = rng.integers(max(info.min, -5), 5, 200, dtype)
    y[:4], x[:4] = [0, info.max, max(info.min, -1), 1], info.min
    y[4:8] = info.bits - 1, info.bits, 65 % info.max, 40
    with np.errstate(all="ignore"):
        expected = {
            "add": x + y, "multiply": x * y, "subtract": x - y, "floor_divide": x // y, "remainder": x % y,
            "fmod": np.fmod(x, y), "maximum": np.maximum(x, y), "square": x * x, "less": x < y,
            "left_shift": x << y, "right_shift": x >> y,
        }  # fmt: skip
    roots = [e.call(fn, *([X] if fn == "square" else [X, Y])) for fn in expected]
    outputs = [(r, np.empty_like(v)) for r, v in zip(roots, expected.values(), strict=True)]
    for one, (fn, value) in zip(evaluate(outputs, {"x": x, "y": y}), expected.items(), strict=True):
        np.testing.assert_array_equal(one, value, err_msg=fn)


@pytest.mark.parametrize("dtype", ["int8", "int32", "int64"])
def test_negative_powers_of_integers_are_cut_at_the_point(dtype: str) -> None:
    """Of 0 they are the least number, as in Paddle."""
    x = np.array([-2, -1, -1, 0, 1, 2, 3, -3, 0], dtype)
    y = np.array([-1, -1, -2, -1, -5, -1, -2, 3, 0], dtype)
    (out,) = evaluate([(e.call("power", X, Y), np.empty_like(x))], {"x": x, "y": y})
    assert out.tolist() == [0, -1, 1, np.iinfo(dtype).min, 1, 0, 0, -27, 1]


@pytest.mark.parametrize("source", ["bool", "uint8", "int64", "float16", "float32"])
def test_every_type_converts_to_every_other(source: str) -> None:
    x = np.array([0, 1, 2, 3, 7, 1, 0, 100.5]).astype(source)
    kinds = ["bool", "int8", "uint8", "int16", "int32", "int64", "float16", ml_dtypes.bfloat16,
             "float32", "float64"]  # fmt: skip
    outputs = [(e.copy(X), np.empty(8, kind)) for kind in kinds]
    for one, kind in zip(evaluate(outputs, {"x": x}, launches=1), kinds, strict=True):
        np.testing.assert_array_equal(
            np.asarray(one, "f8"), x.astype(kind).astype("f8"), err_msg=str(kind)
        )


def test_memory_is_read_sixteen_bytes_at_once_where_it_can_be() -> None:
    dev = gpu()

    def width(shape: tuple[int, ...], dtype: Any, row: tuple[int, ...]) -> str:
        x, y, out = (dev.scratch(s, dtype) for s in (shape, row, shape))
        (step,) = bind_cuda(dev, [(X + Y, out)], {"x": x, "y": y})
        return next((f for f in ("load_vec<8>", "load_vec<4>") if f in step.kernel.body), "")

    assert width((37, 64), np.float32, (37, 64)) == "load_vec<4>"
    assert width((37, 65), np.float32, (37, 65)) == "load_vec<4>"
    assert width((37, 64), ml_dtypes.bfloat16, (64,)) == "load_vec<8>"
    assert width((37, 64), np.float16, (37, 1)) == "load_vec<8>"
    assert width((37, 65), np.float32, (65,)) == ""


def test_what_lies_where_it_is_wanted_is_not_written_again() -> None:
    x, total = values(33, 8), np.empty(8, "f4")
    dev = gpu()
    x, total = dev.xp.asarray(x), dev.xp.asarray(total)
    assert bind_cuda(dev, [(e.copy(X), x)], {"x": x}) == []
    (step,) = bind_cuda(dev, [(e.copy(X), x), (e.copy(X), total)], {"x": x})
    assert [kind for kind, _ in step.kernel.parameters if kind.endswith("*")] == [
        "const float*", "float*",
    ]  # fmt: skip


def test_a_group_that_cannot_be_one_loop_is_bound_op_by_op() -> None:
    """The operand of a product that the group itself makes turns out to be repeated."""
    common = {"where": "train.py:7"}
    axis = {"axis": -1, "use_mkldnn": False, "x_data_format": "", "y_data_format": ""}
    body = [
        {"op": "tanh", "inputs": {"X": [1]}, "outputs": {"Out": [2]}, **common,
         "attrs": {"use_mkldnn": False, "use_cudnn": False}},
        {"op": "elementwise_mul", "inputs": {"X": [0], "Y": [2]}, "outputs": {"Out": [3]}, **common,
         "attrs": axis},
    ]  # fmt: skip
    x, y = values(3, 4), values(4, seed=1)
    results = run(
        OPS["fusion_group"], {"X": [x, y]}, {"body": body, "results": [3]}, dev=gpu(), **CUDA
    )
    np.testing.assert_allclose(results["Out"][0], x * np.tanh(y), rtol=1e-6)


def test_nothing_is_done_for_no_elements_but_sums_are_zero() -> None:
    x = np.empty((0, 4), "f4")
    whole, total = evaluate(
        [(e.copy(X), np.empty_like(x)), (e.copy(X), np.ones(4, "f4"))], {"x": x}
    )
    assert whole.shape == (0, 4)
    np.testing.assert_array_equal(total, np.zeros(4))
    assert fill(gpu(), x, 1) == []


def test_numbers_are_parameters_and_equal_parts_are_written_once() -> None:
    writer = CudaWriter({"x": Value("v0", "float")})
    root = e.tanh(X * 0.7) + e.tanh(X * 0.7) * 2
    assert writer.number(root, "double").startswith("t")
    assert [line.count("tanhf") for line in writer.lines].count(1) == 1
    assert [(c.kind, c.name, c.value) for c in writer.constants] == [("float", "c0", 0.7)]
    other = CudaWriter({"x": Value("v0", "float")})
    other.number(e.tanh(X * 0.9) + e.tanh(X * 0.9) * 2, "double")
    assert other.lines == writer.lines
    assert not known(e.call("cbrt", X))


def test_every_kernel_compiles_for_a_gpu(launched: dict[str, CudaKernel]) -> None:
    assert_compile_for_a_gpu(launched)
