"""``fluid.incubate.fleet.base``: roles, and what fleets have in common."""

from .....names import listing, missing
from . import fleet_base, mode, role_maker

__all__ = ["fleet_base", "mode", "role_maker"]
__dir__ = listing(__name__)
__getattr__ = missing(__name__)
