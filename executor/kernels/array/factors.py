"""Determinants, eigenvalues, singular values and triangular factors, as the array module finds them."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from ....graph.ops.factors import Determinant, Eigh, Qr, Svd
from ...codegen.factors import factors
from ...device.device import Device
from ..registry import Step, kernel


def _call(dev: Device, op: str, results: Sequence[Any], compute: Callable[[], Any]) -> Step:
    def run() -> None:
        values = factors(dev, op, "such factors", compute)
        for out, value in zip(results, values, strict=True):
            if out is not None:
                dev.xp.copyto(out, value.reshape(out.shape))

    return run


@kernel("determinant")
def determinant(dev: Device, a: Determinant) -> Step:
    return _call(dev, "det", [a.out], lambda: [dev.xp.linalg.det(a.input)])


@kernel("slogdeterminant")
def slogdeterminant(dev: Device, a: Determinant) -> Step:
    return _call(dev, "slogdet", [a.out[:1], a.out[1:]], lambda: dev.xp.linalg.slogdet(a.input))


@kernel("svd")
def svd(dev: Device, a: Svd) -> Step:
    return _call(
        dev,
        "svd",
        [a.u, a.s, a.vh],
        lambda: dev.xp.linalg.svd(a.x, full_matrices=a.full_matrices),
    )


@kernel("eigh")
def eigh(dev: Device, a: Eigh) -> Step:
    results = [a.eigenvalues, a.eigenvectors]
    return _call(dev, "eigh", results, lambda: dev.xp.linalg.eigh(a.x, a.UPLO))


@kernel("qr")
def qr(dev: Device, a: Qr) -> Step:
    return _call(dev, "qr", [a.q, a.r], lambda: dev.xp.linalg.qr(a.x, a.mode))
