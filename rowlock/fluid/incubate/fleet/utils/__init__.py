"""``fluid.incubate.fleet.utils``: file systems, and sums over workers."""

from .....names import publish_imports
from . import fleet_util as fleet_util
from . import hdfs as hdfs

publish_imports(__name__, fleet_util, hdfs)
