"""``fluid.incubate.fleet.base.mode``: the kinds of fleets."""

from .....names import listing, missing


class Mode:
    """What a fleet's workers share parameters by."""

    TRANSPILER = 1
    PSLIB = 2
    COLLECTIVE = 3


__all__ = ["Mode"]
__dir__ = listing(__name__)
__getattr__ = missing(__name__)
