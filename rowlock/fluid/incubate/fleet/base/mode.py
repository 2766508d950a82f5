"""``fluid.incubate.fleet.base.mode``: the kinds of fleets."""

from .....cluster.fleet.fleet import Mode as Mode
from .....names import publish_imports

publish_imports(__name__)
