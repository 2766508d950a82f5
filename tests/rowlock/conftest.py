"""Layers are held to Paddle here: by NumPy and oneDNN, since a loop takes longer to compile than all else."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from rowlock.executor.kernels import capabilities as able


@pytest.fixture(scope="module", autouse=True)
def no_compiled_loops() -> Iterator[None]:
    """Have none: ``tests/ops`` holds them to references, and ``tests/contract`` trains with them."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setitem(able._VERSIONS, "numba", lambda: "")
        able.capabilities.cache_clear()
        yield
    able.capabilities.cache_clear()
