"""Products of matrices on a GPU: the simulated one's arithmetic, and what cuBLASLt is asked for."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest

from rowlock.executor.cuda import cublaslt, cublaslt_terms
from rowlock.executor.cuda.gemm import EPILOGUES, Gemm, Operands, ReferenceBlas, in_tf32
from rowlock.executor.cuda.libraries import library
from rowlock.executor.cuda.runtime import Properties
from rowlock.executor.host.disk_cache import disk_cache
from rowlock.strategies.errors import ExecutionError
from tests.executor.column_major import ColumnMajorLibrary

M, N, K = 5, 8, 3
TYPES = ["float32", "float16", "float64"]
ONE = [e for e in EPILOGUES if "relu_aux" not in e and not e.startswith("drelu")]  # no bits


def gemm(epilogue: str = "none", kind: str = "float32", **more: Any) -> Gemm:
    """A product whose rows lie further apart than they are long."""
    settings: dict[str, Any] = {
        "a_type": kind,
        "b_type": kind,
        "d_type": kind,
        "lda": K + 1,
        "ldb": N + 2,
        "ldd": N + 3,
        "compute": "float64" if kind == "float64" else "float32",
        "ld_aux": 128 if "relu" in epilogue else N,
    }
    return Gemm(m=M, n=N, k=K, epilogue=epilogue, **{**settings, **more})


def operands(g: Gemm, seed: int = 0) -> Operands:
    rng = np.random.default_rng(seed)

    def drawn(kind: str, rows: int, columns: int, ld: int) -> np.ndarray:
        room = rng.standard_normal((g.batch, rows, ld)).astype(kind)
        return room[:, :, :columns] if g.batch > 1 else room[0, :, :columns]

    a = drawn(g.a_type, *((K, M) if g.transpose_a else (M, K)), g.lda)
    b = drawn(g.b_type, *((N, K) if g.transpose_b else (K, N)), g.ldb)
    d = drawn(g.d_type, M, N, g.ldd)
    bias = drawn(g.d_type, 1, g.sums or N, g.sums or N)[0]
    if "relu" in g.epilogue:
        aux: Any = rng.integers(0, 255, (M, g.ld_aux // 8)).astype(np.uint8)
    else:
        aux = drawn(g.d_type, M, N, g.ld_aux or N)
    return Operands(a, b, d, bias if g.adds_bias or g.sums else None, aux if g.has_aux else None)


def wide(array: Any) -> np.ndarray:
    return np.asarray(array, np.float64)


def tanh_gelu(x: np.ndarray) -> np.ndarray:
    return 0.5 * x * (1 + np.tanh(np.sqrt(2 / np.pi) * (x + 0.044715 * x**3)))


def expected(g: Gemm, o: Operands) -> dict[str, np.ndarray]:
    """Work a product out in double precision, another way."""
    a, b = (wide(x).swapaxes(-1, -2) if t else wide(x)
            for x, t in ((o.a, g.transpose_a), (o.b, g.transpose_b)))  # fmt: skip
    d = g.alpha * np.einsum("...mk,...kn->...mn", a, b) + g.beta * wide(o.d)
    more: dict[str, np.ndarray] = {}
    if g.adds_bias:
        d = d + wide(o.bias)
    if g.epilogue.startswith("relu"):
        more["aux"], d = d > 0, np.where(d > 0, d, 0)
    elif g.epilogue.startswith("gelu"):
        more["aux"], d = d, tanh_gelu(d)
    elif g.epilogue.startswith("dgelu"):
        at, h = wide(o.aux), 1e-5
        d = d * (tanh_gelu(at + h) - tanh_gelu(at - h)) / (2 * h)
    elif g.epilogue.startswith("drelu"):
        d = d * np.unpackbits(o.aux, axis=1, bitorder="little")[:, :N]
    if g.epilogue.endswith("_bgrad"):
        more["bias"] = d.sum(0)
    if g.epilogue == "bgrad_a":
        more["bias"] = a.sum(1)
    if g.epilogue == "bgrad_b":
        more["bias"] = b.sum(0)
    return {"d": d, **({} if "aux" in g.epilogue else {k: v for k, v in more.items() if k != "aux"}),
            **(more if "aux" in g.epilogue else {})}  # fmt: skip


def check(g: Gemm, o: Operands, exact: dict[str, np.ndarray], share: float) -> None:
    for name, value in exact.items():
        result = getattr(o, name)
        if result.dtype == np.uint8:
            result = np.unpackbits(result, axis=1, bitorder="little")[:, :N]
        error = np.abs(wide(result) - value).max()
        assert error <= share * max(np.abs(value).max(), 1), (g, name)


@pytest.mark.parametrize("kind", TYPES)
@pytest.mark.parametrize("epilogue", EPILOGUES)
def test_simulated_products_are_those_described(epilogue: str, kind: str) -> None:
    for turned in range(4):
        ld = {"lda": 7, "ldb": 9} if turned else {}
        more = {"transpose_a": bool(turned & 1), "transpose_b": bool(turned & 2), **ld}
        more = {**more, "ldb": 9} if turned & 2 else {**more, "ldb": N + 2}
        g = gemm(epilogue, kind, alpha=0.5, beta=float(turned == 3), **more)
        o = operands(g)
        exact = expected(g, o)
        ReferenceBlas().bind(g, o, None)()
        check(g, o, exact, {"float32": 1e-6, "float16": 1e-3, "float64": 1e-9}[kind])


def test_batches_step_through_memory_as_described() -> None:
    g = gemm(batch=4, stride_a=M * (K + 1), stride_b=K * (N + 2), stride_d=M * (N + 3))
    o = operands(g)
    exact = expected(g, o)
    ReferenceBlas().bind(g, o, None)()
    check(g, o, exact, 1e-6)


def test_a_product_that_leaves_its_operand_is_a_mistake() -> None:
    g = gemm()
    with pytest.raises(AssertionError, match="reach"):
        ReferenceBlas().bind(gemm(lda=K + 2), operands(g), None)


def test_tf32_rounds_factors_to_ten_bits() -> None:
    one = np.float32(1)
    x = np.array([one + 2.0**-11, one + 3 * 2.0**-11, 1 + 2.0**-10, np.inf, np.nan], "f4")
    np.testing.assert_array_equal(in_tf32(x), [1, 1 + 2 * 2.0**-10, 1 + 2.0**-10, np.inf, np.nan])
    g = gemm(compute="tf32")
    o = operands(g)
    exact = expected(g, o)["d"]
    ReferenceBlas().bind(g, o, None)()
    assert 1e-5 < np.abs(o.d - exact).max() < 1e-2


@pytest.mark.skipif(library("cublasLt") is None, reason="cuBLASLt is not installed")
@pytest.mark.parametrize("epilogue", EPILOGUES)
def test_the_library_accepts_descriptions_of_all_products(epilogue: str) -> None:
    assert cublaslt.version()
    addresses = {"a": 1 << 12, "b": 1 << 13, "d": 1 << 14, "bias": 1 << 15, "aux": 1 << 16}
    for kind in ("float32", "float16", "bfloat16", "float64"):
        g = gemm(epilogue, kind, batch=2 if epilogue == "none" else 1, stride_a=64)
        cublaslt_terms.Description(g, addresses).preference(32 << 20)


# -- what is asked of the library, on a stand-in ----------------------------------------------------


class Runtime:
    """Host memory, and events that take as long as an algorithm's number says."""

    def __init__(self, stand_in: ColumnMajorLibrary) -> None:
        self.properties = Properties("a GPU", (9, 0), 132, 1 << 30)
        self.compute = SimpleNamespace(ptr=0)

        class Event:
            def record(self, stream: Any) -> None:
                self.at = sum(stand_in.used)

            def synchronize(self) -> None:
                pass

        cuda = SimpleNamespace(Event=Event, get_elapsed_time=lambda a, b: b.at - a.at)
        self.xp = SimpleNamespace(cuda=cuda, asnumpy=np.asarray)

    def use(self) -> None:
        pass

    def address(self, array: Any) -> int:
        return int(array.ctypes.data)

    def empty(self, nbytes: int) -> Any:
        return np.empty(nbytes + 4, np.uint8)


@pytest.fixture
def stand_in(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> ColumnMajorLibrary:
    fake = ColumnMajorLibrary()
    for module in (cublaslt, cublaslt_terms):
        monkeypatch.setattr(module, "library", lambda name: fake)
        monkeypatch.setattr(module, "version", lambda: "13.0.0")
    monkeypatch.setenv("ROWLOCK_CACHE_DIR", str(tmp_path))
    return fake


def blas(stand_in: ColumnMajorLibrary) -> Any:
    return cublaslt.CublasLt(Runtime(stand_in))  # type: ignore[arg-type]


WORKSPACE = np.empty(64, np.uint8)


@pytest.mark.parametrize("epilogue", ONE)
def test_the_library_is_asked_for_what_is_described(
    epilogue: str, stand_in: ColumnMajorLibrary
) -> None:
    on = blas(stand_in)
    for turned in range(4):
        more: dict[str, Any] = {"transpose_a": bool(turned & 1), "transpose_b": bool(turned & 2)}
        more |= {"lda": 7, "ldb": 11, "alpha": 0.5, "beta": float(turned == 1)}
        g = gemm(epilogue, **more)
        o = operands(g)
        exact = expected(g, o)
        assert on.takes(g, o)
        on.bind(g, o, WORKSPACE)()
        check(g, o, exact, 1e-6)


def test_a_batch_is_asked_for_at_once(stand_in: ColumnMajorLibrary) -> None:
    g = gemm(batch=4, stride_a=M * (K + 1), stride_b=K * (N + 2), stride_d=M * (N + 3))
    o = operands(g)
    exact = expected(g, o)
    blas(stand_in).bind(g, o, WORKSPACE)()
    check(g, o, exact, 1e-6)


def test_candidates_are_timed_once_and_the_fastest_is_kept_on_disk(
    stand_in: ColumnMajorLibrary, tmp_path: Path
) -> None:
    stand_in.algorithms = {9: np.nan, 2: np.nan, 5: np.nan}
    g = gemm()
    o = operands(g)
    before = o.d.copy()
    on = blas(stand_in)
    step = on.bind(g, o, WORKSPACE)
    np.testing.assert_array_equal(o.d, before)  # candidates are not tried on the operands
    step()
    assert stand_in.used[-1] == 2
    ran = stand_in.ran
    on.bind(g, o, WORKSPACE)
    blas(stand_in).bind(g, o, WORKSPACE)()
    assert (stand_in.asked, stand_in.ran, stand_in.used[-1]) == (1, ran + 1, 2)
    (file,) = tmp_path.glob("*.json")
    disk_cache().write(file.name, b'{"algorithm": "00"}')
    for _ in range(2):  # the second finds what the first chose in the place of that
        blas(stand_in).bind(g, o, WORKSPACE)()
        assert stand_in.asked == 2
    stand_in.algorithms = {7: np.nan}  # what is kept does not work any more
    blas(stand_in).bind(g, o, WORKSPACE)()
    assert stand_in.used[-1] == 7


def test_a_relu_that_hides_what_is_not_a_number_is_not_taken(stand_in: ColumnMajorLibrary) -> None:
    stand_in.algorithms = {2: 0.0, 5: np.nan}
    g = gemm("relu_bias")
    o = operands(g)
    blas(stand_in).bind(g, o, WORKSPACE)()
    assert stand_in.used[-1] == 5
    stand_in.algorithms = {2: 0.0}
    assert not blas(stand_in).takes(gemm("relu"), o)


def test_a_product_that_the_library_refuses_is_named(stand_in: ColumnMajorLibrary) -> None:
    stand_in.algorithms = {}
    g = gemm(transpose_a=True, lda=7)
    message = r"product of float32 \[5, 3\] transposed and float32 \[3, 8\].* 15 \(not supported\)"
    with pytest.raises(ExecutionError, match=message):
        blas(stand_in).bind(g, operands(g), WORKSPACE)


def test_operands_count_as_aligned_as_far_as_algorithms_tell() -> None:
    """More would have the same product timed, and perhaps added up, anew at each address."""
    addresses = (2, 24, 16, 256, 1 << 20, 0)
    assert [cublaslt_terms.alignment(at) for at in addresses] == [2, 8, 16, 16, 16, 16]


def test_a_choice_serves_all_operands_that_are_aligned_as_far_as_algorithms_tell(
    stand_in: ColumnMajorLibrary,
) -> None:
    g = gemm()
    o, on = operands(g), blas(stand_in)

    def moved(array: np.ndarray, begin: int) -> np.ndarray:
        """Return room for an array that begins so many bytes behind a boundary of 1,024."""
        room = np.empty(array.nbytes + 2048, np.uint8)
        begin += -room.ctypes.data % 1024
        return room[begin : begin + array.nbytes].view(array.dtype).reshape(array.shape)

    for begin, asked in ((0, 1), (16, 1), (256, 1), (8, 2), (24, 2), (4, 3)):
        on.takes(g, replace(o, d=moved(o.d, begin), a=moved(o.a, 0), b=moved(o.b, 0)))
        assert stand_in.asked == asked, begin
