"""What tests of generated kernels share."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from rowlock.executor.cuda.kernel import CudaKernel
from tests.ops.gpu import collected


@pytest.fixture(scope="module")
def launched() -> Iterator[dict[str, CudaKernel]]:
    """The kernels that the tests of a module launch, by key."""
    with collected() as kernels:
        yield kernels
