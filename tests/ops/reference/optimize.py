"""Updates of parameters."""

from __future__ import annotations

from typing import Any

import numpy as np

from rowlock.graph.ops.fused_optimize import FUSED
from rowlock.graph.ops.update import WITHOUT_GRAD

from .registry import REFERENCE, reference


@reference("sgd")
def sgd(ins: dict[str, Any], attrs: dict[str, Any]) -> dict[str, Any]:
    return {"ParamOut": ins["Param"] - ins["LearningRate"] * ins["Grad"]}


@reference("asgd")
def asgd(ins: dict[str, Any], attrs: dict[str, Any]) -> dict[str, Any]:
    total = ins["D"] + ins["Grad"] - ins["Y"]
    param = ins["Param"] - ins["LearningRate"] * total
    return {"DOut": total, "YOut": ins["Grad"], "ParamOut": param}


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
    root = np.sqrt(1 - ins["Beta2Pow"])
    rate = ins["LearningRate"] * root / (1 - ins["Beta1Pow"])
    return {
        "Moment1Out": m,
        "Moment2Out": v,
        "ParamOut": ins["Param"]
        - rate * m / (np.sqrt(v) + attrs["epsilon"] * (root if attrs["scales_epsilon"] else 1)),
        "Beta1PowOut": ins["Beta1Pow"] * b1,
        "Beta2PowOut": ins["Beta2Pow"] * b2,
    }


@reference("adamw")
def adamw(ins: dict[str, Any], attrs: dict[str, Any]) -> dict[str, Any]:
    rate = attrs["lr_ratio"] * ins["LearningRate"]
    share = 1 - rate * attrs["coeff"] if attrs["with_decay"] else 1
    ins = {**ins, "Param": share * ins["Param"], "LearningRate": rate}
    return adam(ins, {**attrs, "scales_epsilon": True})


@reference("amsgrad")
def amsgrad(ins: dict[str, Any], attrs: dict[str, Any]) -> dict[str, Any]:
    rate = attrs["lr_ratio"] * ins["LearningRate"]
    param = ins["Param"] * (1 - rate * attrs["coeff"] if attrs["with_decay"] else 1)
    outs = adam({**ins, "Param": param}, {**attrs, "scales_epsilon": False})
    largest = np.maximum(ins["Moment2Max"], outs["Moment2Out"])
    mean = outs["Moment1Out"] / (1 - ins["Beta1Pow"])
    step = mean / (np.sqrt(largest / (1 - ins["Beta2Pow"])) + attrs["epsilon"])
    return {**outs, "Moment2MaxOut": largest, "ParamOut": param - rate * step}


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
    rate = ins["LearningRate"] if attrs["with_rate"] else 1.0
    return {
        "AvgSquaredGradOut": a,
        "AvgSquaredUpdateOut": u,
        "ParamOut": ins["Param"] - rate * step,
    }


@reference("rmsprop")
def rmsprop(ins: dict[str, Any], attrs: dict[str, Any]) -> dict[str, Any]:
    d, g, mean = attrs["decay"], ins["Grad"], ins["MeanGrad"]
    s = d * ins["MeanSquare"] + (1 - d) * g**2
    if attrs["centered"]:
        mean = d * mean + (1 - d) * g
    root = np.sqrt(s - mean**2 * attrs["centered"] + attrs["epsilon"])
    v = attrs["momentum"] * ins["Moment"] + ins["LearningRate"] * g / root
    return {"MeanSquareOut": s, "MeanGradOut": mean, "MomentOut": v, "ParamOut": ins["Param"] - v}


def norm(x: np.ndarray) -> float:
    return float(np.sqrt((x**2).sum()))


@reference("lars_momentum")
def lars_momentum(ins: dict[str, Any], attrs: dict[str, Any]) -> dict[str, Any]:
    p, g, decay = ins["Param"], ins["Grad"], attrs["lars_weight_decay"]
    rate = ins["LearningRate"]
    if norm(p) > 0 and norm(g) > 0:
        rate = rate * attrs["lars_coeff"] * norm(p) / (norm(g) + decay * norm(p))
    v = attrs["mu"] * ins["Velocity"] + rate * (g + decay * p)
    return {"VelocityOut": v, "ParamOut": p - v}


@reference("lamb")
def lamb(ins: dict[str, Any], attrs: dict[str, Any]) -> dict[str, Any]:
    b1, b2, p, g = attrs["beta1"], attrs["beta2"], ins["Param"], ins["Grad"]
    powers = ins["Beta1Pow"], ins["Beta2Pow"]
    m = b1 * ins["Moment1"] + (1 - b1) * g
    v = b2 * ins["Moment2"] + (1 - b2) * g**2
    mean, square = m, v
    if attrs["corrects_bias"]:
        mean, square = m / (1 - powers[0]), v / (1 - powers[1])
        powers = powers[0] * b1, powers[1] * b2
    step = mean / (np.sqrt(square) + attrs["epsilon"]) + attrs["weight_decay"] * p
    adapts = attrs["always_adapt"] or attrs["weight_decay"] > 0
    trust = norm(p) / norm(step) if adapts and norm(p) and norm(step) else 1.0
    results = {"ParamOut": p - ins["LearningRate"] * trust * step, "Moment1Out": m, "Moment2Out": v}
    return {**results, "Beta1PowOut": powers[0], "Beta2PowOut": powers[1]}


@reference("dpsgd")
def dpsgd(ins: dict[str, Any], attrs: dict[str, Any]) -> dict[str, Any]:
    scale = max(1.0, norm(ins["Grad"]) / attrs["clip"])
    step = ins["Grad"] / scale + attrs["sigma"] * ins["Noise"] / attrs["batch_size"]
    return {"ParamOut": ins["Param"] - ins["LearningRate"] * step}


@reference("ftrl")
def ftrl(ins: dict[str, Any], attrs: dict[str, Any]) -> dict[str, Any]:
    old, rate, power = ins["SquaredAccumulator"], ins["LearningRate"], -attrs["lr_power"]
    new = old + ins["Grad"] ** 2
    z = ins["LinearAccumulator"] + ins["Grad"] - (new**power - old**power) / rate * ins["Param"]
    p = (attrs["l1"] * np.sign(z) - z) / (new**power / rate + 2 * attrs["l2"])
    param = np.where(np.abs(z) > attrs["l1"], p, 0)
    return {"ParamOut": param, "SquaredAccumOut": new, "LinearAccumOut": z}


def proximal(p: np.ndarray, rate: np.ndarray, attrs: dict[str, Any]) -> np.ndarray:
    rest = np.where(np.abs(p) > rate * attrs["l1"], p - np.sign(p) * rate * attrs["l1"], 0)
    return rest / (1 + rate * attrs["l2"])


@reference("proximal_gd")
def proximal_gd(ins: dict[str, Any], attrs: dict[str, Any]) -> dict[str, Any]:
    rate = ins["LearningRate"]
    return {"ParamOut": proximal(ins["Param"] - rate * ins["Grad"], rate, attrs)}


@reference("proximal_adagrad")
def proximal_adagrad(ins: dict[str, Any], attrs: dict[str, Any]) -> dict[str, Any]:
    rate, m = ins["LearningRate"], ins["Moment"] + ins["Grad"] ** 2
    p = ins["Param"] - rate * ins["Grad"] / np.sqrt(m)
    return {"MomentOut": m, "ParamOut": proximal(p, rate, attrs)}


@reference("nadam")
def nadam(ins: dict[str, Any], attrs: dict[str, Any]) -> dict[str, Any]:
    b1, b2, decay, g = attrs["beta1"], attrs["beta2"], attrs["momentum_decay"], ins["Grad"]
    decayed, power = 0.96 * ins["MomentumDecayPow"], b2 * ins["Beta2Pow"]
    mu, ahead = (b1 * (1 - 0.5 * x**decay) for x in (decayed, 0.96 * decayed))
    product = ins["MuProduct"] * mu
    m = b1 * ins["Moment1"] + (1 - b1) * g
    v = b2 * ins["Moment2"] + (1 - b2) * g**2
    mean = ahead * m / (1 - product * ahead) + (1 - mu) * g / (1 - product)
    step = mean / (np.sqrt(v / (1 - power)) + attrs["epsilon"])
    return {
        "MomentumDecayPowOut": decayed,
        "Beta2PowOut": power,
        "MuProductOut": product,
        "Moment1Out": m,
        "Moment2Out": v,
        "ParamOut": ins["Param"] - ins["LearningRate"] * step,
    }


@reference("radam")
def radam(ins: dict[str, Any], attrs: dict[str, Any]) -> dict[str, Any]:
    b1, b2, g = attrs["beta1"], attrs["beta2"], ins["Grad"]
    first, second = b1 * ins["Beta1Pow"], b2 * ins["Beta2Pow"]
    rho = (ins["Rho"] * (b2 - second) + second) / (1 - second)
    m = b1 * ins["Moment1"] + (1 - b1) * g
    v = b2 * ins["Moment2"] + (1 - b2) * g**2
    longest = 2 / (1 - b2) - 1
    t = longest - 2 * rho
    root = np.sqrt(np.maximum((t - 4) * (t - 2) * longest / ((longest - 4) * (longest - 2) * t), 0))
    factor = np.where(t > 5, root * np.sqrt(1 - second) / (np.sqrt(v) + attrs["epsilon"]), 1)
    return {
        "Beta1PowOut": first,
        "Beta2PowOut": second,
        "RhoOut": rho,
        "Moment1Out": m,
        "Moment2Out": v,
        "ParamOut": ins["Param"] - ins["LearningRate"] * m / (1 - first) * factor,
    }


@reference("rprop")
def rprop(ins: dict[str, Any], attrs: dict[str, Any]) -> dict[str, Any]:
    same = np.sign(ins["Grad"] * ins["Prev"])
    grown = np.choose((same + 1).astype(int), [attrs["eta_negative"], 1, attrs["eta_positive"]])
    ends = attrs["learning_rate_min"], attrs["learning_rate_max"]
    rates = np.clip(ins["LearningRates"] * grown, *ends)
    g = np.where(same < 0, 0, ins["Grad"])
    return {"PrevOut": g, "LearningRatesOut": rates, "ParamOut": ins["Param"] - rates * np.sign(g)}


def each(single: str) -> Any:
    """The single update, parameter by parameter."""

    def merged(ins: dict[str, Any], attrs: dict[str, Any]) -> dict[str, Any]:
        rows = [dict(zip(ins, row, strict=True)) for row in zip(*ins.values(), strict=True)]
        lists = {name: values for name, values in attrs.items() if isinstance(values, list)}
        results = []
        for k, row in enumerate(rows):
            own = {name: values[k] for name, values in lists.items()}
            results.append(REFERENCE[single](row, {**attrs, **own}))
        return {slot: [one[slot] for one in results] for slot in results[0]}

    return merged


def without_grad(single: str) -> Any:
    """The single update with a gradient of zero; powers stay."""

    def update(ins: dict[str, Any], attrs: dict[str, Any]) -> dict[str, Any]:
        results = REFERENCE[single]({**ins, "Grad": 0 * ins["Param"]}, attrs)
        return {slot: result for slot, result in results.items() if result.shape != (1,)}

    return update


for _single, _fused in FUSED.items():
    if _single.endswith(WITHOUT_GRAD):
        reference(_single)(without_grad(_single.removesuffix(WITHOUT_GRAD)))
    reference(_fused)(each(_single))
