"""Optimizer updates as compiled loops, one pass over each parameter; updates of many parameters are one call.

The formulas are those of ``optimize.py``, where their sources stand.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

import numpy as np

from ....graph.ir.graph import Node
from ....graph.lowering.select import in_single
from ....graph.ops import expr as e
from ....graph.ops.fused_optimize import FUSED, OWN, own_attributes
from ....graph.ops.registry import OPS
from ...codegen.loops import bind_loops
from ...codegen.native import Launch
from ...device.device import Device
from ..array import optimize as _optimize  # noqa: F401 - single updates are registered there
from ..array.masters import MASTER_OPERANDS
from ..array.widened import has_low
from ..registry import KERNELS, Kernel, Step, call
from .elementwise import in_float32

Operands = Mapping[str, e.Expr]
Results = dict[str, e.Expr]  # output slot, as a parameter -> what is written to it


def _rest(beta: float) -> float:
    return float(np.float32(1) - np.float32(beta))


def _averaged(old: e.Expr, new: e.Expr, beta: float) -> e.Expr:
    return old * beta + new * _rest(beta)


def sgd(o: Operands) -> Results:
    """p -= lr * g."""
    return {"param_out": o["param"] - o["learning_rate"] * o["grad"]}


def momentum(o: Operands, *, mu: float, use_nesterov: bool) -> Results:
    """v = mu v + g; p -= lr v, or lr (g + mu v)."""
    v = o["velocity"] * mu + o["grad"]
    step = v * mu + o["grad"] if use_nesterov else v
    return {"velocity_out": v, "param_out": o["param"] - o["learning_rate"] * step}


def adam(o: Operands, *, beta1: float, beta2: float, epsilon: float | e.Expr) -> Results:
    """m and v averaged; p -= lr_t m / (sqrt(v) + e); the powers advance after use."""
    rate = o["learning_rate"] * e.sqrt(1 - o["beta2_pow"]) / (1 - o["beta1_pow"])
    m = _averaged(o["moment1"], o["grad"], beta1)
    v = _averaged(o["moment2"], o["grad"] * o["grad"], beta2)
    return {
        "moment1_out": m,
        "moment2_out": v,
        "param_out": o["param"] - m / (e.sqrt(v) + epsilon) * rate,
        "beta1_pow_out": o["beta1_pow"] * beta1,
        "beta2_pow_out": o["beta2_pow"] * beta2,
    }


def adamw(o: Operands, *, beta1: float, beta2: float, epsilon: float) -> Results:
    """p -= lr coeff p where it decays, then Adam's step with epsilon corrected for the bias of v."""
    rate = o["learning_rate"] * o["lr_ratio"]
    kept = o["param"] - rate * (o["coeff"] * o["with_decay"]) * o["param"]
    floor = epsilon * e.sqrt(1 - o["beta2_pow"])
    o = {**o, "param": kept, "learning_rate": rate}
    return adam(o, beta1=beta1, beta2=beta2, epsilon=floor)


def _scaled(o: Operands, moment: e.Expr, epsilon: float) -> e.Expr:
    return o["param"] - o["grad"] / (e.sqrt(moment) + epsilon) * o["learning_rate"]


def adagrad(o: Operands, *, epsilon: float) -> Results:
    """m += g^2; p -= lr g / (sqrt(m) + e)."""
    m = o["moment"] + o["grad"] * o["grad"]
    return {"moment_out": m, "param_out": _scaled(o, m, epsilon)}


def decayed_adagrad(o: Operands, *, decay: float, epsilon: float) -> Results:
    """m averaged over g^2; p -= lr g / (sqrt(m) + e)."""
    m = _averaged(o["moment"], o["grad"] * o["grad"], decay)
    return {"moment_out": m, "param_out": _scaled(o, m, epsilon)}


def adamax(o: Operands, *, beta1: float, beta2: float, epsilon: float) -> Results:
    """m averaged, u = max(|g|, b2 u + e); p -= lr / (1 - b1^t) m / u."""
    m = _averaged(o["moment"], o["grad"], beta1)
    u = e.maximum(e.abs_(o["grad"]), o["inf_norm"] * beta2 + epsilon)
    rate = o["learning_rate"] / (1 - o["beta1_pow"])
    return {"moment_out": m, "inf_norm_out": u, "param_out": o["param"] - m / u * rate}


def adadelta(o: Operands, *, rho: float, epsilon: float) -> Results:
    """The step is the gradient times a ratio of two running root mean squares."""
    a = _averaged(o["avg_squared_grad"], o["grad"] * o["grad"], rho)
    step = e.sqrt((o["avg_squared_update"] + epsilon) / (a + epsilon)) * o["grad"]
    return {
        "avg_squared_grad_out": a,
        "avg_squared_update_out": _averaged(o["avg_squared_update"], step * step, rho),
        "param_out": o["param"] - step,
    }


RULES: dict[str, tuple[Callable[..., Results], tuple[str, ...]]] = {
    "sgd": (sgd, ()),
    "momentum": (momentum, ("mu", "use_nesterov")),
    "adam": (adam, ("beta1", "beta2", "epsilon")),
    "adamw": (adamw, ("beta1", "beta2", "epsilon", *OWN["adamw"])),
    "adagrad": (adagrad, ("epsilon",)),
    "decayed_adagrad": (decayed_adagrad, ("decay", "epsilon")),
    "adamax": (adamax, ("beta1", "beta2", "epsilon")),
    "adadelta": (adadelta, ("rho", "epsilon")),
}


def _bind(op_type: str, operands: tuple[str, ...], many: bool) -> Callable[..., list[Launch]]:
    rule, _ = RULES[op_type]
    slots = [slot.parameter for slot in OPS[op_type].input_slots if slot.parameter in operands]
    own = OWN.get(op_type, ())
    reads = [*slots, *own]
    traced: dict[str, Results] = {}  # what the rule makes of its attributes, which are few

    def bind(dev: Device, *arrays: Any, **attrs: Any) -> list[Launch]:
        shared = {name: given for name, given in attrs.items() if name not in own}
        key = repr(shared)
        if key not in traced:
            traced[key] = rule({name: e.argument(name) for name in reads}, **shared)
        results = traced[key]
        columns = arrays if many else [[array] for array in arrays]
        tables = [dict(zip(operands, row, strict=True)) for row in zip(*columns, strict=True)]
        for name in own:  # read like operands, so that updates share a loop
            numbers = np.array(attrs[name] if many else [attrs[name]], np.float32)
            for k, table in enumerate(tables):
                table[name] = numbers[k : k + 1]
        scalars = [name for name in results if name.endswith("_pow_out")]
        entries = []
        for names in ([n for n in results if n not in scalars], scalars):
            used = reads if names is not scalars else [n.removesuffix("_out") for n in names]
            entries += [
                ([(results[n], t[n]) for n in names], {n: t[n] for n in used}) for t in tables
            ]
        return bind_loops([entry for entry in entries if entry[0]])

    bind.__doc__ = f"{op_type}, one pass over each parameter."
    return bind


def _one_by_one(op_type: str, back_end: str) -> Callable[..., list[Step]]:
    single = KERNELS[op_type, back_end]

    def bind(dev: Device, *columns: Any, **attrs: Any) -> list[Step]:
        steps: list[Step] = []
        for k in range(len(columns[0])):
            named = zip(single.operands, columns, strict=True)
            arrays = {name: column[k] if column else None for name, column in named}
            with dev.in_turn():
                own = own_attributes(op_type, attrs, k)
                a = OPS[op_type].filled({**arrays, **own})
                steps += call(OPS[op_type], single, a, dev)
        return steps

    bind.__doc__ = f"{op_type}, parameter by parameter."
    return bind


def _plain(node: Node) -> bool:
    """A master in float32 and SkipUpdate are left to NumPy."""
    extra = node.inputs.get("MasterParam") or node.inputs.get("SkipUpdate")
    return not extra and in_float32(node)


def _together(op_type: str, operands: tuple[str, ...]) -> Callable[..., list[Step]]:
    loops = _bind(op_type, operands, many=True)
    apart = _one_by_one(op_type, "numba")

    def bind(dev: Device, *columns: Any, **attrs: Any) -> list[Step]:
        low = has_low(dict(zip(operands, columns, strict=True)))
        return apart(dev, *columns, **attrs) if low else loops(dev, *columns, **attrs)

    bind.__doc__ = f"{op_type}, one pass over each parameter; float32 scratch is one parameter's."
    return bind


def _together_takes(node: Node) -> bool:
    return _plain(in_single(node))


for _op_type, (_rule, _attrs) in RULES.items():
    _found = KERNELS[_op_type, "numpy"]
    _operands = tuple(name for name in _found.operands if name not in MASTER_OPERANDS)
    KERNELS[_op_type, "numba"] = Kernel(
        _bind(_op_type, _operands, many=False), _operands, _attrs, _plain
    )
    KERNELS[FUSED[_op_type], "numba"] = Kernel(
        _together(_op_type, _operands), _operands, _attrs, _together_takes, low=True
    )
    for _back_end in ("numpy", "cupy"):
        KERNELS[FUSED[_op_type], _back_end] = Kernel(
            _one_by_one(_op_type, _back_end), _found.operands, _found.attributes, low=True
        )
