"""What GPUs have in common whose memory is the host's."""

from __future__ import annotations

from functools import cached_property
from typing import TYPE_CHECKING

import numpy as np

from ..cuda.runtime import Runtime

if TYPE_CHECKING:
    from ..cuda.dnn import Dnn
    from ..cuda.gemm import Blas


class HostMemoryRuntime(Runtime):
    """Memory that is as good as pinned, and libraries by NumPy."""

    xp = np

    @cached_property
    def blas(self) -> Blas:
        """Products by NumPy."""
        from ..cuda.gemm import ReferenceBlas

        return ReferenceBlas()

    @cached_property
    def dnn(self) -> Dnn:
        """Convolutions, norms and attention by NumPy."""
        from .reference_dnn import ReferenceDnn

        return ReferenceDnn()

    def pin(self, array: np.ndarray) -> None:
        """Any host memory will do."""

    def unpin(self, array: np.ndarray) -> None:
        """Nothing was done."""

    def give_back(self) -> None:
        """Memory goes back as soon as it is not used."""

    def address(self, array: np.ndarray) -> int:
        return int(array.ctypes.data)

    def use(self) -> None:
        """Any thread may use it."""
