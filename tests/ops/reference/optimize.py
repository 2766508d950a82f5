"""Updates of parameters."""

from __future__ import annotations

from typing import Any

import numpy as np

from rowlock.graph.ops.fused_optimize import FUSED

from .registry import REFERENCE, reference


@reference("sgd")
def sgd(ins: dict[str, Any], attrs: dict[str, Any]) -> dict[str, Any]:
    return {"ParamOut": ins["Param"] - ins["LearningRate"] * ins["Grad"]}


@reference("momentum")
def momentum(ins: dict[str, Any], attrs: dict[str, Any]) -> dict[str, Any]:
    v = attrs["mu"] * ins["Velocity"] + ins["Grad"]
    step = ins["Grad"] + attrs["mu"] * v if attrs["use_nesterov"] else v
    return {"VelocityOut": v, "ParamOut": ins["Param"] - ins["LearningRate"] * step}


@reference("adam")
def adam(ins: dict[str, Any], attrs: dict[str, Any]) -> dict[str, Any]:
    b1, b2, g = attrs["beta1"], attrs["beta2"], ins["Grad"]
    m = b1 * ins["Moment1"] + (1 - b1) * g
    v = b2 * ins["Moment2"] + (1 - b2) * g**2
    rate = ins["LearningRate"] * np.sqrt(1 - ins["Beta2Pow"]) / (1 - ins["Beta1Pow"])
    return {
        "Moment1Out": m,
        "Moment2Out": v,
        "ParamOut": ins["Param"] - rate * m / (np.sqrt(v) + attrs["epsilon"]),
        "Beta1PowOut": ins["Beta1Pow"] * b1,
        "Beta2PowOut": ins["Beta2Pow"] * b2,
    }


@reference("adamw")
def adamw(ins: dict[str, Any], attrs: dict[str, Any]) -> dict[str, Any]:
    rate, root = attrs["lr_ratio"] * ins["LearningRate"], np.sqrt(1 - ins["Beta2Pow"])
    kept = 1 - rate * attrs["coeff"] if attrs["with_decay"] else 1
    return adam(
        {**ins, "Param": kept * ins["Param"], "LearningRate": rate},
        {**attrs, "epsilon": attrs["epsilon"] * root},
    )


def root_step(ins: dict[str, Any], m: np.ndarray, epsilon: float) -> dict[str, Any]:
    step = ins["LearningRate"] * ins["Grad"] / (np.sqrt(m) + epsilon)
    return {"MomentOut": m, "ParamOut": ins["Param"] - step}


@reference("adagrad")
def adagrad(ins: dict[str, Any], attrs: dict[str, Any]) -> dict[str, Any]:
    return root_step(ins, ins["Moment"] + ins["Grad"] ** 2, attrs["epsilon"])


@reference("decayed_adagrad")
def decayed_adagrad(ins: dict[str, Any], attrs: dict[str, Any]) -> dict[str, Any]:
    d = attrs["decay"]
    return root_step(ins, d * ins["Moment"] + (1 - d) * ins["Grad"] ** 2, attrs["epsilon"])


@reference("adamax")
def adamax(ins: dict[str, Any], attrs: dict[str, Any]) -> dict[str, Any]:
    m = attrs["beta1"] * ins["Moment"] + (1 - attrs["beta1"]) * ins["Grad"]
    u = np.maximum(np.abs(ins["Grad"]), attrs["beta2"] * ins["InfNorm"] + attrs["epsilon"])
    rate = ins["LearningRate"] / (1 - ins["Beta1Pow"])
    return {"MomentOut": m, "InfNormOut": u, "ParamOut": ins["Param"] - rate * m / u}


@reference("adadelta")
def adadelta(ins: dict[str, Any], attrs: dict[str, Any]) -> dict[str, Any]:
    rho, e, g = attrs["rho"], attrs["epsilon"], ins["Grad"]
    a = rho * ins["AvgSquaredGrad"] + (1 - rho) * g**2
    step = np.sqrt((ins["AvgSquaredUpdate"] + e) / (a + e)) * g
    u = rho * ins["AvgSquaredUpdate"] + (1 - rho) * step**2
    return {"AvgSquaredGradOut": a, "AvgSquaredUpdateOut": u, "ParamOut": ins["Param"] - step}


@reference("rmsprop")
def rmsprop(ins: dict[str, Any], attrs: dict[str, Any]) -> dict[str, Any]:
    d, g, mean = attrs["decay"], ins["Grad"], ins["MeanGrad"]
    s = d * ins["MeanSquare"] + (1 - d) * g**2
    if attrs["centered"]:
        mean = d * mean + (1 - d) * g
    root = np.sqrt(s - mean**2 * attrs["centered"] + attrs["epsilon"])
    v = attrs["momentum"] * ins["Moment"] + ins["LearningRate"] * g / root
    return {"MeanSquareOut": s, "MeanGradOut": mean, "MomentOut": v, "ParamOut": ins["Param"] - v}


def each(single: str) -> Any:
    """The single update, parameter by parameter."""

    def merged(ins: dict[str, Any], attrs: dict[str, Any]) -> dict[str, Any]:
        rows = [dict(zip(ins, row, strict=True)) for row in zip(*ins.values(), strict=True)]
        lists = {name: given for name, given in attrs.items() if isinstance(given, list)}
        made = []
        for k, row in enumerate(rows):
            own = {name: given[k] for name, given in lists.items()}
            made.append(REFERENCE[single](row, {**attrs, **own}))
        return {slot: [one[slot] for one in made] for slot in made[0]}

    return merged


for _single, _fused in FUSED.items():
    reference(_fused)(each(_single))
