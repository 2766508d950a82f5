"""``fluid.incubate.fleet.utils.hdfs``: Hadoop's file system."""

from .....cluster.fleet.files import HDFSClient
from .....names import listing, missing

__all__ = ["HDFSClient"]
__dir__ = listing(__name__)
__getattr__ = missing(__name__)
