"""``paddle.distributed.fleet.utils``: file systems."""

from ....names import publish_imports
from . import fs as fs
from .fs import HDFSClient as HDFSClient
from .fs import LocalFS as LocalFS

publish_imports(__name__, fs)
