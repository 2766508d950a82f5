"""``fluid.default_scope_funcs``: a stack of scopes that begins with a scope of its own."""

from collections.abc import Callable
from typing import Any

from ..executor.feed.scope import Scope, ScopeVariable
from ..names import publish_definitions

_stack: list[Scope] = []


def get_cur_scope() -> Scope:
    """Return the innermost scope."""
    if not _stack:
        _stack.append(Scope())
    return _stack[-1]


def enter_local_scope() -> None:
    """Enter a new child of the innermost scope."""
    _stack.append(get_cur_scope().new_scope())


def leave_local_scope() -> None:
    """Leave the innermost scope, and forget its children."""
    _stack.pop()
    get_cur_scope().drop_kids()


def var(name: str) -> ScopeVariable:
    """Return a variable of the innermost scope, created if missing."""
    return get_cur_scope().var(name)


def find_var(name: str) -> ScopeVariable | None:
    """Return a variable of the innermost scope or a scope around it, or None."""
    return get_cur_scope().find_var(name)


def scoped_function(func: Callable[[], Any]) -> Any:
    """Call ``func()`` inside a new scope and return its result."""
    enter_local_scope()
    try:
        return func()
    finally:
        leave_local_scope()


publish_definitions(__name__)
