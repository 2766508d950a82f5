"""Weights as a direction and a length: w = g v / |v|. Salimans & Kingma, arXiv 1602.07868."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from ...strategies.errors import InvalidValue
from ..program import unique_name
from ..program.block import Block
from ..program.variable import Variable
from .binary import elementwise_div, elementwise_mul
from .helper import COMPOSED, LayerHelper
from .initializer import Initializer
from .param_attr import WeightNormParamAttr
from .shape import reshape


def normed_weight(
    helper: LayerHelper,
    attr: WeightNormParamAttr,
    shape: Sequence[int],
    dtype: Any,
    initializer: Initializer,
) -> Variable:
    """Create the parameters ``<name>_g`` and ``<name>_v`` in both programs, and return the weight.

    The startup program sets g to the length of v, so that the weight begins as it was initialised.

    Raises:
        InvalidValue: the weight has no such dimension.
    """
    rank, dim = len(shape), attr.dim
    if dim is not None and not -rank <= dim < rank:
        raise InvalidValue(f"WeightNormParamAttr: dim={dim} is outside the {rank} dimensions.")
    dim = None if dim is None else dim % rank
    name = attr.name or unique_name.generate(f"{helper.name}.w")
    lengths = [size if i == dim else 1 for i, size in enumerate(shape)]
    keywords = attr.settings()
    startup, main = helper.startup_program.global_block(), helper.main_program.global_block()
    v_settings, g_settings = {**keywords, "name": f"{name}_v"}, {**keywords, "name": f"{name}_g"}
    helper.initialise(f"{name}_v", shape, dtype, initializer, v_settings)
    if not startup.has_var(f"{name}_g"):
        g = startup.create_parameter(lengths, dtype, **g_settings)
        length = _Norm(helper, startup, dtype).length(startup.var(f"{name}_v"), dim)
        startup.append_op("reshape", {"X": length}, {"Out": g}, {"shape": lengths})
    g = main.create_parameter(lengths, dtype, **g_settings)
    v = main.create_parameter(shape, dtype, **v_settings)
    length = _Norm(helper, helper.block, dtype).length(v, dim)
    factor = elementwise_div(g, length)
    if dim is None:
        return elementwise_mul(v, factor)
    return elementwise_mul(v, reshape(factor, [shape[dim]]), axis=dim)


COMPOSED[WeightNormParamAttr] = normed_weight


class _Norm:
    """Appends the ops of a length to a block."""

    def __init__(self, helper: LayerHelper, block: Block, dtype: Any) -> None:
        self.helper, self.block, self.dtype = helper, block, dtype

    def _new(self, word: str) -> Variable:
        name = unique_name.generate(f"{self.helper.name}.weight_norm_{word}")
        return self.block.create_var(name=name, dtype=self.dtype)

    def _apply(self, op_type: str, x: Variable, attrs: dict[str, Any], word: str) -> Variable:
        out = self._new(word)
        self.block.append_op(op_type, {"X": x}, {"Out": out}, attrs)
        return out

    def _euclid(self, x: Variable, dim: int | None) -> Variable:
        size = self._apply("abs", x, {}, "abs")
        square = self._apply("pow", size, {"factor": 2.0}, "pow")
        sums = {"dim": [0 if dim is None else dim], "keep_dim": False, "reduce_all": dim is None}
        total = self._apply("reduce_sum", square, sums, "sum")
        return self._apply("pow", total, {"factor": 0.5}, "norm")

    def length(self, v: Variable, dim: int | None) -> Variable:
        """Return the length of v, as a whole or at each index of ``dim``."""
        shape = v.shape or ()
        if dim is None:
            return self._euclid(v, None)
        last = len(shape) - 1
        if dim not in (0, last):
            order = list(range(len(shape)))
            order[0], order[dim] = dim, 0
            turned = self._apply("transpose", v, {"axis": order}, "transpose")
            return self._apply("transpose", self.length(turned, 0), {"axis": order}, "norm")
        flat = [shape[0], -1] if dim == 0 else [-1, shape[last]]
        matrix = self._apply("reshape", v, {"shape": flat}, "reshape")
        length = self._euclid(matrix, 1 if dim == 0 else 0)
        sizes = [size if i == dim else 1 for i, size in enumerate(shape)]
        return self._apply("reshape", length, {"shape": sizes}, "norm")
