"""``paddle.utils.unique_name``: names of variables and parameters."""

from ..fluid.unique_name import generate, guard, switch
from ..names import listing, missing

__all__ = ["generate", "guard", "switch"]
__dir__ = listing(__name__)
__getattr__ = missing(__name__)
