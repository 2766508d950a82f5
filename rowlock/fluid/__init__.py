"""Paddle 1.x's front: ``import rowlock.fluid as fluid``."""

from __future__ import annotations

import importlib
from typing import Any

from .. import launch as _launch  # noqa: F401 - registers the launchers
from ..executor.compiled_program import CompiledProgram
from ..executor.data_feeder import DataFeeder
from ..executor.executor import Executor
from ..executor.parallel_executor import ParallelExecutor
from ..executor.place import (
    CPUPlace,
    CUDAPinnedPlace,
    CUDAPlace,
    cpu_places,
    cuda_pinned_places,
    cuda_places,
)
from ..executor.scope import Scope, global_scope, scope_guard
from ..executor.tensor import (
    LoDTensor,
    Tensor,
    create_lod_tensor,
    create_random_int_lodtensor,
)
from ..graph import unique_name
from ..graph.backward import append_backward, gradients
from ..graph.clip import set_gradient_clip
from ..graph.layers.io import checked_data as data
from ..graph.layers.nn import embedding_v2 as embedding
from ..graph.layers.shape import one_hot_v2 as one_hot
from ..graph.param_attr import ParamAttr
from ..graph.program import (
    Program,
    default_main_program,
    default_startup_program,
    program_guard,
)
from ..graph.scopes import device_guard, name_scope
from ..graph.variable import Parameter, Variable
from ..strategies.flags import get_flags, set_flags
from . import (
    backward,
    clip,
    contrib,
    core,
    framework,
    initializer,
    io,
    layers,
    nets,
    optimizer,
    regularizer,
)
from .io import load, load_program_state, save, set_program_state

_LAZY = {"BuildStrategy": "build", "ExecutionStrategy": "execution"}


def __getattr__(name: str) -> Any:
    if name in _LAZY:  # Pydantic is imported when a strategy is first named
        module = importlib.import_module(f"..strategies.{_LAZY[name]}", __name__)
        return getattr(module, name)
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")


__all__ = [
    "BuildStrategy",
    "CPUPlace",
    "CUDAPinnedPlace",
    "CUDAPlace",
    "CompiledProgram",
    "DataFeeder",
    "ExecutionStrategy",
    "Executor",
    "LoDTensor",
    "ParallelExecutor",
    "ParamAttr",
    "Parameter",
    "Program",
    "Scope",
    "Tensor",
    "Variable",
    "append_backward",
    "backward",
    "clip",
    "contrib",
    "core",
    "cpu_places",
    "create_lod_tensor",
    "create_random_int_lodtensor",
    "cuda_pinned_places",
    "cuda_places",
    "data",
    "default_main_program",
    "default_startup_program",
    "device_guard",
    "embedding",
    "framework",
    "get_flags",
    "global_scope",
    "gradients",
    "initializer",
    "io",
    "layers",
    "load",
    "load_program_state",
    "name_scope",
    "nets",
    "one_hot",
    "optimizer",
    "program_guard",
    "regularizer",
    "save",
    "scope_guard",
    "set_flags",
    "set_gradient_clip",
    "set_program_state",
    "unique_name",
]
