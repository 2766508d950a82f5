"""What tests of a GPU use: ``runtime`` is a real one if there is one, else simulated; ``hardware`` is real."""

from __future__ import annotations

import pytest

from rowlock.executor.cuda.runtime import Runtime
from tests.ops.gpu import gpu


@pytest.fixture
def runtime() -> Runtime:
    """A GPU, with nothing under way."""
    runtime = gpu().runtime
    assert runtime is not None
    runtime.use()
    runtime.synchronize()
    return runtime


@pytest.fixture
def hardware(runtime: Runtime) -> Runtime:
    """A GPU that is not simulated."""
    if runtime.name != "cupy":
        pytest.skip("this host has no GPU")
    return runtime
