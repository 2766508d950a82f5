"""Layers of two tensors: arithmetic, comparison and logic element by element, and matrix products."""

from __future__ import annotations

from ...strategies.errors import InvalidValue, require_type
from ..ops.fused_activation import FUSED
from ..program.variable import Variable
from .arguments import of_family
from .helper import LayerHelper, constant_layer, layer, layers


def _elementwise(
    op_type: str,
    x: Variable,
    y: Variable,
    axis: int = -1,
    act: str | None = None,
    name: str | None = None,
) -> Variable:
    """``{name}`` of x and y; y is aligned with x at ``axis`` and broadcast."""
    helper = LayerHelper(op_type, name)
    return helper.activate(helper.layer(op_type, x=x, y=y, axis=axis), act)


elementwise_add = of_family(_elementwise, "elementwise_add")
elementwise_sub = of_family(_elementwise, "elementwise_sub")
elementwise_mul = of_family(_elementwise, "elementwise_mul")
elementwise_div = of_family(_elementwise, "elementwise_div")
elementwise_max = of_family(_elementwise, "elementwise_max")
elementwise_min = of_family(_elementwise, "elementwise_min")
elementwise_pow = of_family(_elementwise, "elementwise_pow")
elementwise_mod = of_family(_elementwise, "elementwise_mod")
elementwise_floordiv = of_family(_elementwise, "elementwise_floordiv")


def fused_elemwise_activation(
    x: Variable,
    y: Variable,
    functor_list: list[str] | str,
    axis: int = -1,
    scale: float = 0.0,
    save_intermediate_out: bool = True,
) -> Variable:
    """Return act(x + y), x + act(y), or the same of products, as one op.

    ``functor_list`` names the functions, outermost first: ["relu", "elementwise_add"] is relu(x + y).
    ``scale`` is the factor of an activation "scale".

    Raises:
        InvalidType: ``x`` or ``y`` is no Variable.
        InvalidValue: ``functor_list`` does not hold two names, or not of such ops.
    """
    functors = functor_list.split(",") if isinstance(functor_list, str) else functor_list
    if not isinstance(functors, list) or len(functors) != 2:
        raise InvalidValue(
            f"{FUSED}: functor_list must be a list of two op types, such as ['elementwise_add', 'relu'], got "
            f"{functor_list!r}."
        )
    attrs = {"axis": axis, "scale": scale, "save_intermediate_out": save_intermediate_out}
    fields = {"x": x, "y": y, "functor_list": functors, **attrs}
    return layers(FUSED, None, "Out IntermediateOut", **fields)[0]


def _comparison(op_type: str, x: Variable, y: Variable, cond: Variable | None = None) -> Variable:
    """``{name}``, element by element; ``cond`` is the boolean variable to write."""
    return constant_layer(op_type, x=x, y=y, out=cond)


def less_than(
    x: Variable, y: Variable, force_cpu: bool | None = None, cond: Variable | None = None
) -> Variable:
    """``less_than``, element by element; ``cond`` is the boolean variable to write."""
    require_type(force_cpu, bool | None, "less_than: force_cpu must be a bool")
    return constant_layer("less_than", x=x, y=y, out=cond, force_cpu=force_cpu)


less_equal = of_family(_comparison, "less_equal")
greater_than = of_family(_comparison, "greater_than")
greater_equal = of_family(_comparison, "greater_equal")
equal = of_family(_comparison, "equal")
not_equal = of_family(_comparison, "not_equal")


def _logical(
    op_type: str, x: Variable, y: Variable, out: Variable | None = None, name: str | None = None
) -> Variable:
    """``{name}`` of booleans; ``out`` is the boolean variable to write."""
    return constant_layer(op_type, name, x=x, y=y, out=out)


logical_and = of_family(_logical, "logical_and")
logical_or = of_family(_logical, "logical_or")
logical_xor = of_family(_logical, "logical_xor")


def logical_not(x: Variable, out: Variable | None = None, name: str | None = None) -> Variable:
    """The opposite of booleans; ``out`` is the boolean variable to write."""
    return constant_layer("logical_not", name, x=x, out=out)


def matmul(
    x: Variable,
    y: Variable,
    transpose_x: bool = False,
    transpose_y: bool = False,
    alpha: float = 1.0,
    name: str | None = None,
) -> Variable:
    """alpha * x @ y of one type, [..., M, K] and [..., K, N], leading dimensions broadcast: [..., M, N].

    ``transpose_x`` and ``transpose_y`` swap the last two dimensions before. A vector is a row on the left and
    a column on the right.

    Raises:
        ShapeError: inner sizes, leading ones or types differ.
    """
    attrs = {"transpose_X": transpose_x, "transpose_Y": transpose_y, "alpha": alpha}
    return layer("matmul", name, x=x, y=y, **attrs)


def mul(
    x: Variable,
    y: Variable,
    x_num_col_dims: int = 1,
    y_num_col_dims: int = 1,
    name: str | None = None,
) -> Variable:
    """x @ y, each flattened to a matrix after its first ``num_col_dims`` dimensions."""
    attrs = {"x_num_col_dims": x_num_col_dims, "y_num_col_dims": y_num_col_dims}
    return layer("mul", name, x=x, y=y, **attrs)
