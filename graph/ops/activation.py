"""Unary activations, each a scalar expression with a scalar gradient."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

from . import expr as e
from .registry import Grad, Op, define
from .rules import same
from .samples import normal, sample

_LIBRARY = {"use_mkldnn": False, "use_cudnn": False}


def define_activation(
    name: str,
    scalar: Callable[..., Any],
    reads: str,
    gradient: Callable[..., Any],
    *,
    attrs: Mapping[str, Any] | None = None,
    samples: tuple[Any, ...] = (sample({"X": normal(3, 4)}), sample({"X": normal(5)})),
) -> None:
    """Declare an activation and its gradient op, which reads ``reads`` (X or Out) and Out@GRAD."""
    attrs = _LIBRARY if attrs is None else attrs
    define(
        Op(
            type=name,
            inputs=("X",),
            outputs=("Out",),
            attrs=attrs,
            shape=same("X"),
            grad=Grad(f"{name}_grad", (reads, "Out@GRAD"), ("X@GRAD",)),
            scalar=scalar,
            in_place={"Out": "X"},
            samples=samples,
        )
    )
    define(
        Op(
            type=f"{name}_grad",
            inputs=(reads, "Out@GRAD"),
            outputs=("X@GRAD",),
            attrs=attrs,
            shape=same(reads, "X@GRAD"),
            scalar=gradient,
            in_place={"X@GRAD": "Out@GRAD"},
        )
    )


_KINKED = (sample({"X": normal(3, 4, away_from=(0.0,))}),)

define_activation(
    "relu",
    lambda x: e.maximum(x, 0),
    "Out",
    lambda out, d_out: d_out * (out > 0),
    samples=_KINKED,
)
define_activation("sigmoid", lambda x: 1 / (1 + e.exp(-x)), "Out", lambda out, d_out: d_out * out * (1 - out))
define_activation("tanh", lambda x: e.tanh(x), "Out", lambda out, d_out: d_out * (1 - out * out))
define_activation("exp", lambda x: e.exp(x), "Out", lambda out, d_out: d_out * out)
define_activation("square", lambda x: x * x, "X", lambda x, d_out: d_out * 2 * x)
