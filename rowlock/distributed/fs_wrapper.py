"""``paddle.distributed.fs_wrapper``: file systems for checkpoints."""

from ..cluster.fleet.files import LocalFS
from ..names import listing, missing

__all__ = ["LocalFS"]
__dir__ = listing(__name__)
__getattr__ = missing(__name__)
