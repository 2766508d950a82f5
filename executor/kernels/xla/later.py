"""Modules that are imported when they are first used: jax takes a second, and may not be there."""

from __future__ import annotations

import importlib
from typing import Any


class Later:
    """Stands for a module until it is needed."""

    def __init__(self, name: str) -> None:
        self._name = name

    def __getattr__(self, attribute: str) -> Any:
        return getattr(importlib.import_module(self._name), attribute)


jax = Later("jax")
jnp = Later("jax.numpy")
lax = Later("jax.lax")
special = Later("jax.scipy.special")
stored = Later("jax.experimental.serialize_executable")
