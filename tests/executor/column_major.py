"""A stand-in for cuBLASLt's library: its calls on host memory, in float32, with its own column-major terms.

It knows nothing of row-major matrices, so that what is asked of the library is checked and not only repeated.
"""

from __future__ import annotations

import ctypes
from collections.abc import Callable
from typing import Any

import numpy as np

from rowlock.executor.cuda.gemm import gelu, gelu_slope


def floats(address: int, count: int) -> np.ndarray:
    """Return so many numbers at an address."""
    return np.frombuffer((ctypes.c_float * count).from_address(address), np.float32)


class ColumnMajorLibrary:
    """What ``ctypes`` would give. ``algorithms``: those it has, by number, and what relu makes of NaN."""

    def __init__(self) -> None:
        self.objects: dict[int, dict[Any, Any]] = {}
        self.algorithms: dict[int, float] = {3: np.nan}
        self.asked = self.ran = 0
        self.used: list[int] = []

    def __getitem__(self, name: str) -> Callable[..., int]:
        return getattr(self, name)  # type: ignore[no-any-return]

    def __getattr__(self, name: str) -> Callable[..., int]:
        kind = name.removeprefix("cublasLt")
        for end, call in (("Create", self._create), ("SetAttribute", self._set)):
            if kind.endswith(end):
                return call
        if kind.endswith("Destroy"):
            return lambda handle: self.objects.pop(handle.value, None) is None
        raise AttributeError(name)

    def _create(self, handle: Any, *arguments: Any) -> int:
        handle._obj.value = len(self.objects) + 1
        while handle._obj.value in self.objects:
            handle._obj.value += 1
        self.objects[handle._obj.value] = {"given": [g.value for g in arguments]}
        return 0

    def _set(self, handle: Any, attribute: Any, value: Any, size: Any) -> int:
        self.objects[handle.value][attribute.value] = value._obj.value
        return 0

    def cublasLtMatmulAlgoGetHeuristic(self, handle: Any, *rest: Any) -> int:
        self.asked += 1
        results, count = rest[-2], rest[-1]._obj
        for result, number in zip(results, self.algorithms, strict=False):
            result.algorithm.data[0], result.workspace, result.state = number, 16, 0
        count.value = len(self.algorithms)
        return 0 if self.algorithms else 15

    def cublasLtMatmulAlgoCheck(self, *rest: Any) -> int:
        return 0 if rest[-2]._obj.data[0] in self.algorithms else 15

    def _matrix(self, address: Any, layout: Any) -> np.ndarray:
        _, rows, columns, ld = self.objects[layout.value]["given"]
        batch, stride = (self.objects[layout.value].get(i, d) for i, d in ((5, 1), (6, 0)))
        flat = floats(address.value, (batch - 1) * stride + (columns - 1) * ld + rows)
        steps = (4 * stride, 4, 4 * ld)
        return np.lib.stride_tricks.as_strided(flat, (batch, rows, columns), steps)

    def cublasLtMatmul(self, handle: Any, operation: Any, alpha: Any, *rest: Any) -> int:
        a, a_layout, b, b_layout, beta, _, _, d, d_layout, algorithm, *_ = rest
        set_to = self.objects[operation.value]
        self.ran += 1
        number = algorithm._obj.data[0]
        self.used.append(number)
        left, right = self._matrix(a, a_layout), self._matrix(b, b_layout)
        left = left.swapaxes(1, 2) if set_to.get(3) else left
        right = right.swapaxes(1, 2) if set_to.get(4) else right
        target = self._matrix(d, d_layout)
        value = alpha._obj.value * (left @ right) + beta._obj.value * target
        with np.errstate(all="ignore"):
            target[...] = self._finished(set_to, value, left[0], right[0], self.algorithms[number])
        return 0

    def _finished(
        self, set_to: dict[Any, Any], value: Any, left: Any, right: Any, nan: float
    ) -> Any:
        epilogue, rows, columns = set_to[7], *value.shape[1:]
        bias = floats(set_to[8], columns if epilogue == 512 else rows) if 8 in set_to else None
        aux = None
        if epilogue & 128:
            flat = floats(set_to[11], set_to[12] * (columns - 1) + rows)
            aux = np.lib.stride_tricks.as_strided(flat, (rows, columns), (4, 4 * set_to[12]))
        if epilogue & 4:
            value = value + bias[:, None]
        if epilogue & 32 and aux is not None:
            aux[...] = value
        if epilogue & 32:
            value = gelu(value)
        if epilogue & 2:
            value = np.where(np.isnan(value), np.float32(nan), np.maximum(value, 0))
        if epilogue & 64:
            value = value * gelu_slope(np.ascontiguousarray(aux))
        if epilogue & 16:
            bias[:] = value[0].sum(1)
        if epilogue == 256:
            bias[:] = left.sum(1)
        if epilogue == 512:
            bias[:] = right.sum(0)
        return value
