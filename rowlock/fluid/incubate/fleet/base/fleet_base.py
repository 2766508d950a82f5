"""``fluid.incubate.fleet.base.fleet_base``: what fleets have in common."""

from .....cluster.fleet.fleet import DistributedOptimizer as DistributedOptimizer
from .....cluster.fleet.fleet import Fleet as Fleet
from .....cluster.fleet.fleet import Mode as Mode
from .....names import publish_imports

publish_imports(__name__)
