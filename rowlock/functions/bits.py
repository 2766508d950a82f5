"""Functions of the bits of integers, with Paddle 2.x's signatures."""

from __future__ import annotations

from collections.abc import Callable

from ..graph.layers.helper import layer
from ..graph.program.variable import Variable
from ..names import publish_definitions
from ..strategies.errors import Unsupported


def _two(op_type: str, text: str) -> Callable[..., Variable]:
    def function(
        x: Variable, y: Variable, out: Variable | None = None, name: str | None = None
    ) -> Variable:
        return layer(op_type, x=x, y=y, out=out)

    function.__name__ = function.__qualname__ = op_type
    function.__doc__ = f"{text} Of booleans, logic; y is broadcast."
    return function


bitwise_and = _two("bitwise_and", "The bits that x and y both have.")
bitwise_or = _two("bitwise_or", "The bits that x or y has.")
bitwise_xor = _two("bitwise_xor", "The bits that one of x and y has.")


def bitwise_not(x: Variable, out: Variable | None = None, name: str | None = None) -> Variable:
    """The bits that x has not; of booleans, the opposite."""
    return layer("bitwise_not", x=x, out=out)


bitwise_invert = bitwise_not


def _shift(direction: str) -> Callable[..., Variable]:
    op_type = f"bitwise_{direction}_shift"

    def function(
        x: Variable,
        y: Variable,
        is_arithmetic: bool = True,
        out: Variable | None = None,
        name: str | None = None,
    ) -> Variable:
        if not is_arithmetic:
            raise Unsupported(f"{op_type}: shifts keep the sign: leave out is_arithmetic=False.")
        return layer(op_type, x=x, y=y, out=out)

    function.__name__ = function.__qualname__ = op_type
    function.__doc__ = (
        f"The bits of integers, moved to the {direction} by as many places as y says."
    )
    return function


bitwise_left_shift = _shift("left")
bitwise_right_shift = _shift("right")


publish_definitions(__name__)
