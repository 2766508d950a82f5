"""``fluid.incubate.fleet.utils.fleet_util``: what workers print and count together."""

from .....cluster.fleet.fleet_util import FleetUtil as FleetUtil
from .....names import publish_imports

publish_imports(__name__)
