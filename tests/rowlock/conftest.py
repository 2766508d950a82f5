"""What tests of many small programs share."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from rowlock.executor.kernels import capabilities as able


@pytest.fixture(scope="module")
def no_compiled_loops() -> Iterator[None]:
    """Let NumPy and oneDNN compute: to compile loops takes longer than all else of programs that run once.

    ``tests/ops`` holds loops to references, and ``tests/contract`` trains with them.
    """
    with pytest.MonkeyPatch.context() as patch:
        patch.setitem(able._VERSIONS, "numba", lambda: "")
        able.capabilities.cache_clear()
        yield
    able.capabilities.cache_clear()
