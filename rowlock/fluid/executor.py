"""``fluid.executor``: executors and scopes."""

from ..executor.executor import Executor
from ..executor.feed.scope import global_scope, scope_guard
from ..names import listing, missing

__all__ = ["Executor", "global_scope", "scope_guard"]
__dir__ = listing(__name__)
__getattr__ = missing(__name__)
