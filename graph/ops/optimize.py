"""Optimizer updates. Every ``...Out`` is the same memory as the input it updates."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from ...strategies.types import LOW, VarType
from .registry import Inference, Op, Spec, Specs, define
from .samples import normal, sample, uniform


def _update(*state: str, powers: tuple[str, ...] = ()) -> Any:
    """Return the shape rule of an update: state and gradient are like Param, powers have one element.

    Beside a parameter in low precision its state and gradient may be float32, as its master is.
    """

    def rule(op: Inference) -> Mapping[str, Specs]:
        param = op.spec("Param")
        wide = param._replace(dtype=VarType.FP32)
        low = param.dtype in LOW
        for slot in ("Grad", *state):
            fits = op.spec(slot) == param or (low and op.spec(slot) == wide)
            op.require(fits, f"{slot} must be like Param")
        if op.has("LearningRate"):
            op.require(op.shape("LearningRate") == (1,), "LearningRate must have one element")
        if op.has("SkipUpdate"):
            skip = op.spec("SkipUpdate") == Spec((1,), VarType.BOOL)
            op.require(skip, "SkipUpdate must be one boolean")
        made = {f"{slot}Out": op.spec(slot) for slot in ("Param", *state, *powers)}
        if op.has("MasterParam"):
            master = op.spec("MasterParam") == wide and low
            op.require(
                master, "MasterParam must be float32, of the shape of Param in low precision"
            )
            made["MasterParamOut"] = wide
        return made

    return rule


def _define(
    name: str,
    state: tuple[str, ...],
    attrs: Mapping[str, Any],
    *,
    powers: tuple[str, ...] = (),
    fixed_powers: tuple[str, ...] = (),
    numbers: Mapping[str, str] | None = None,
    optional: tuple[str, ...] = (),
    rate: bool = True,
    given: Mapping[str, Any] | None = None,
) -> None:
    inputs = ("Param", "Grad", *(("LearningRate",) if rate else ()), *state, *powers, *fixed_powers)
    positive = {"Velocity", "Moment1"}
    drawn = {slot: normal(3, 4) if slot in positive else uniform(3, 4, low=0.1) for slot in state}
    drawn |= {slot: uniform(1, low=0.5, high=0.9) for slot in (*powers, *fixed_powers)}
    operands = {"Param": normal(3, 4), "Grad": normal(3, 4), **drawn}
    if rate:
        operands["LearningRate"] = uniform(1, low=0.1)
    updated = ("Param", *state, *powers)
    masters = tuple(slot for slot in optional if slot == "MasterParam")
    made = (*(f"{slot}Out" for slot in updated), *(f"{slot}Out?" for slot in masters))
    define(
        Op(
            type=name,
            inputs=(*inputs, *(f"{slot}?" for slot in (*(numbers or {}), *optional))),
            outputs=made,
            attrs={**attrs, **({"multi_precision": False} if masters else {})},
            shape=_update(*state, powers=powers),
            numbers=numbers or {},
            in_place={f"{slot}Out": slot for slot in (*updated, *masters)},
            samples=(sample(operands, **(given or {})),),
            refuses=(sample({**operands, "Grad": normal(4, 3)}),),
        )
    )


_BETA_TENSORS = {"Beta1Tensor": "beta1", "Beta2Tensor": "beta2"}
_BETAS = {"beta1": 0.9, "beta2": 0.999}
_define("sgd", (), {}, optional=("MasterParam",))
_define(
    "momentum",
    ("Velocity",),
    {"mu": 0.0, "use_nesterov": False},
    optional=("MasterParam",),
)
_define(
    "adam",
    ("Moment1", "Moment2"),
    {**_BETAS, "epsilon": 1e-8, "lazy_mode": False, "min_row_size_to_use_multithread": 1000},
    powers=("Beta1Pow", "Beta2Pow"),
    numbers=_BETA_TENSORS,
    optional=("MasterParam", "SkipUpdate"),
)
_define(
    "adamw",
    ("Moment1", "Moment2"),
    {
        **_BETAS,
        "epsilon": 1e-8,
        "lr_ratio": 1.0,
        "coeff": 0.01,
        "with_decay": False,
        "lazy_mode": False,
        "min_row_size_to_use_multithread": 1000,
    },
    powers=("Beta1Pow", "Beta2Pow"),
    numbers={**_BETA_TENSORS, "EpsilonTensor": "epsilon"},
    optional=("MasterParam", "SkipUpdate"),
    given={"epsilon": 0.1, "lr_ratio": 0.5, "coeff": 0.25, "with_decay": True},
)
_define("adagrad", ("Moment",), {"epsilon": 1e-6})
_define("decayed_adagrad", ("Moment",), {"decay": 0.95, "epsilon": 1e-6})
_define("adamax", ("Moment", "InfNorm"), {**_BETAS, "epsilon": 1e-8}, fixed_powers=("Beta1Pow",))
_define(
    "adadelta", ("AvgSquaredGrad", "AvgSquaredUpdate"), {"rho": 0.95, "epsilon": 1e-6}, rate=False
)
