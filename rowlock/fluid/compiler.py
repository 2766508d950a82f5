"""``fluid.compiler``: compiled programs and the strategies that they take."""

import importlib
from typing import TYPE_CHECKING, Any

from ..executor.compiled_program import CompiledProgram
from ..names import missing, publish_listed

if TYPE_CHECKING:
    from ..strategies.build import BuildStrategy
    from ..strategies.execution import ExecutionStrategy

_STRATEGIES = {"BuildStrategy": "build", "ExecutionStrategy": "execution"}


def __getattr__(name: str) -> Any:
    if name in _STRATEGIES:  # Pydantic is imported when a strategy is first named
        return getattr(importlib.import_module(f"rowlock.strategies.{_STRATEGIES[name]}"), name)
    return missing(__name__)(name)


__all__ = ["BuildStrategy", "CompiledProgram", "ExecutionStrategy"]

publish_listed(__name__)
