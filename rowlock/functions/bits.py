"""Functions of the bits of integers, with Paddle 2.x's signatures."""

from __future__ import annotations

from ..graph.layers.arguments import of_family
from ..graph.layers.helper import layer
from ..graph.program.variable import Variable
from ..names import publish_definitions
from ..strategies.errors import Unsupported


def _two(
    op_type: str, x: Variable, y: Variable, out: Variable | None = None, name: str | None = None
) -> Variable:
    return layer(op_type, x=x, y=y, out=out)


_LOGIC = "Of booleans, logic; y is broadcast."
bitwise_and = of_family(_two, "bitwise_and", "", f"The bits that x and y both have. {_LOGIC}")
bitwise_or = of_family(_two, "bitwise_or", "", f"The bits that x or y has. {_LOGIC}")
bitwise_xor = of_family(_two, "bitwise_xor", "", f"The bits that one of x and y has. {_LOGIC}")


def bitwise_not(x: Variable, out: Variable | None = None, name: str | None = None) -> Variable:
    """The bits that x has not; of booleans, the opposite."""
    return layer("bitwise_not", x=x, out=out)


bitwise_invert = bitwise_not


def _shift(
    op_type: str,
    x: Variable,
    y: Variable,
    is_arithmetic: bool = True,
    out: Variable | None = None,
    name: str | None = None,
) -> Variable:
    """The bits of integers, moved by as many places as y says: ``{name}``."""
    if not is_arithmetic:
        raise Unsupported(f"{op_type}: shifts keep the sign: leave out is_arithmetic=False.")
    return layer(op_type, x=x, y=y, out=out)


bitwise_left_shift = of_family(_shift, "bitwise_left_shift")
bitwise_right_shift = of_family(_shift, "bitwise_right_shift")


publish_definitions(__name__)
