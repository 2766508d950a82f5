"""``paddle.distributed.fleet.utils.fs``: file systems for checkpoints."""

from ....cluster.fleet.files import HDFSClient as HDFSClient
from ....cluster.fleet.files import LocalFS as LocalFS
from ....names import publish_imports

publish_imports(__name__)
