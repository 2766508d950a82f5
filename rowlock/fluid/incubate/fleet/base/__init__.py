"""``fluid.incubate.fleet.base``: roles, and what fleets have in common."""

from .....names import publish_imports
from . import fleet_base as fleet_base
from . import mode as mode
from . import role_maker as role_maker

publish_imports(__name__, fleet_base, mode, role_maker)
