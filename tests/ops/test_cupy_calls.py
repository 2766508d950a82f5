"""Kernels registered for CuPy keep to what CuPy's functions take. Needs no GPU: NumPy computes.

CuPy's ufuncs reduce only sums and products, take no ``where``, and its ``take`` has no ``mode``. Here the
kernels for CuPy run on a module with these limits; whether the numbers are right on a GPU is tested there.
"""

from __future__ import annotations

import contextlib
import sys
from collections.abc import Iterator
from types import ModuleType, SimpleNamespace
from typing import Any

import numpy as np
import pytest

from rowlock.executor.codegen.erf import erf
from rowlock.executor.codegen.factors import factors
from rowlock.executor.device.device import Device, aligned_bytes
from rowlock.executor.kernels.registry import has_kernel
from rowlock.graph.ops.registry import OPS
from rowlock.strategies.errors import InvalidValue, Unsupported
from tests.ops.harness import draw, gradients, run
from tests.ops.test_conformance import CASES, DIFFERENTIABLE, seeds_of

METHODS = {
    "reduce": ("add", "multiply"),
    "accumulate": ("add", "multiply"),
    "reduceat": ("add",),
    "at": ("add", "subtract", "maximum", "minimum"),
}


class LimitedUfunc:
    """A ufunc with the methods and keywords that CuPy's has."""

    def __init__(self, ufunc: np.ufunc) -> None:
        self.ufunc = ufunc

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        assert set(kwargs) <= {"out", "dtype", "casting"}, f"{self.ufunc.__name__}: {kwargs}"
        return self.ufunc(*args, **kwargs)

    def __getattr__(self, name: str) -> Any:
        assert self.ufunc.__name__ in METHODS[name], f"no {self.ufunc.__name__}.{name}"
        return getattr(self.ufunc, name)


class Limited(ModuleType):
    """NumPy under CuPy's limits."""

    def __getattr__(self, name: str) -> Any:
        if name == "take":
            return lambda a, indices, axis=None, out=None: np.take(a, indices, axis, out)
        function = getattr(np, name)
        return LimitedUfunc(function) if isinstance(function, np.ufunc) else function


class LimitedDevice(Device):
    """A device that calls itself CuPy's."""

    def __init__(self) -> None:
        super().__init__("cupy", Limited("cupy"))

    def _take(self, nbytes: int) -> Any:
        self._lent.append(aligned_bytes(np, nbytes))
        return self._lent[-1]


@pytest.fixture(autouse=True)
def scipy_of_cupy(monkeypatch: pytest.MonkeyPatch) -> None:
    special = ModuleType("cupyx.scipy.special")
    special.erf = lambda x, out: np.copyto(out, erf(x))  # type: ignore[attr-defined]
    for name in ("cupyx", "cupyx.scipy"):
        monkeypatch.setitem(sys.modules, name, ModuleType(name))
    monkeypatch.setitem(sys.modules, "cupyx.scipy.special", special)


# Some ops are computed on the host alone, on GPUs too.
ON_CUPY = [(name, index) for name, index in CASES if has_kernel(name, "cupy")]


@pytest.mark.parametrize(("name", "index"), ON_CUPY)
def test_kernels_for_cupy_keep_to_its_calls(name: str, index: int) -> None:
    op = OPS[name]
    inputs, attrs = draw(op, op.samples[index], "float32")
    outputs = run(op, inputs, attrs)
    limited = run(op, inputs, attrs, dev=LimitedDevice())
    for slot, arrays in outputs.items():
        for one, other in zip(arrays, limited[slot], strict=True):
            np.testing.assert_allclose(one, other, rtol=1e-6, atol=1e-6)
    seeds = seeds_of(op, outputs)
    if (name, index) not in DIFFERENTIABLE or not seeds:
        return
    slopes = gradients(op, inputs, outputs, seeds, attrs)
    again = gradients(op, inputs, outputs, seeds, attrs, dev=LimitedDevice())
    for slot, grads in slopes.items():
        for one, other in zip(grads, again[slot], strict=True):
            np.testing.assert_allclose(one, other, rtol=1e-6, atol=1e-6)


def test_cupy_is_asked_to_tell_of_matrices_without_factors(monkeypatch: pytest.MonkeyPatch) -> None:
    """It would go on with NaN: looking costs a wait."""
    asked: dict[str, str] = {}

    @contextlib.contextmanager
    def errstate(**how: str) -> Iterator[None]:
        asked.update(how)
        yield

    def inverse() -> np.ndarray:
        assert asked == {"linalg": "raise"}
        return np.linalg.inv(np.zeros((2, 2)))

    def missing() -> None:
        raise ImportError("libcusolver.so.12")

    monkeypatch.setitem(sys.modules, "cupyx", SimpleNamespace(errstate=errstate))
    dev: Any = SimpleNamespace(runtime=SimpleNamespace(name="cupy"))
    with pytest.raises(InvalidValue, match="inverse: a matrix has no inverse: Singular matrix"):
        factors(dev, "inverse", "inverse", inverse)
    with pytest.raises(Unsupported, match=r"qr on a GPU needs cuSOLVER: pip .*libcusolver\.so\.12"):
        factors(dev, "qr", "such factors", missing)
