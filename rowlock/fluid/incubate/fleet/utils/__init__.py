"""``fluid.incubate.fleet.utils``: file systems, and sums over workers."""

from .....names import listing, missing
from . import fleet_util, hdfs

__all__ = ["fleet_util", "hdfs"]
__dir__ = listing(__name__)
__getattr__ = missing(__name__)
