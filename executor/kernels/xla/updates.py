"""Lowerings of optimizer updates."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from ....graph.ir.graph import Node
from .later import jnp
from .lowering import Operands, lowering

Made = Mapping[str, Any]


def _plain(node: Node) -> bool:
    """A master and SkipUpdate have no lowering."""
    return not (node.inputs.get("MasterParam") or node.inputs.get("SkipUpdate"))


@lowering("sgd", takes=_plain)
def sgd(x: Operands) -> Made:
    """p - lr * g."""
    return {"ParamOut": x["Param"] - x["Grad"] * x["LearningRate"]}


@lowering("momentum", takes=_plain)
def momentum(x: Operands) -> Made:
    """v = mu v + g; p - lr v, or with Nesterov's step p - lr (g + mu v)."""
    velocity = x["Velocity"] * x.attr("mu") + x["Grad"]
    step = x["Grad"] + velocity * x.attr("mu") if x.attr("use_nesterov") else velocity
    return {"ParamOut": x["Param"] - step * x["LearningRate"], "VelocityOut": velocity}


def _adam(x: Operands, decoupled: bool) -> Made:
    """As the NumPy kernels: 1 - beta is rounded in the element type."""
    grad, one = x["Grad"], x["Param"].dtype.type(1)
    beta1, beta2 = x.attr("beta1"), x.attr("beta2")
    first = x["Moment1"] * beta1 + grad * (one - one.dtype.type(beta1))
    second = x["Moment2"] * beta2 + grad * grad * (one - one.dtype.type(beta2))
    rate, epsilon = x["LearningRate"], x.attr("epsilon")
    root, kept = jnp.sqrt(1.0 - x["Beta2Pow"]), x["Param"]
    if decoupled:
        rate, epsilon = rate * x.attr("lr_ratio"), epsilon * root
        kept = kept - rate * x.attr("coeff") * kept if x.attr("with_decay") else kept
    step = first / (jnp.sqrt(second) + epsilon) * (rate * root / (1.0 - x["Beta1Pow"]))
    return {
        "ParamOut": kept - step,
        "Moment1Out": first,
        "Moment2Out": second,
        "Beta1PowOut": x["Beta1Pow"] * beta1,
        "Beta2PowOut": x["Beta2Pow"] * beta2,
    }


@lowering("adam", takes=_plain)
def adam(x: Operands) -> Made:
    """Adam's step; epsilon is not corrected."""
    return _adam(x, decoupled=False)


@lowering("adamw", takes=_plain)
def adamw(x: Operands) -> Made:
    """Adam's step beside the decay of the parameter, with epsilon corrected."""
    return _adam(x, decoupled=True)
