"""``fluid.incubate.fleet.utils.hdfs``: Hadoop's file system."""

from .....cluster.fleet.files import HDFSClient as HDFSClient
from .....names import publish_imports

publish_imports(__name__)
