"""Paddle 1.x's front: ``import rowlock.fluid as fluid``."""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING, Any

from ..strategies.garbage import gc_paused

with gc_paused():
    from ..cluster import launch as _launch  # noqa: F401 - registers the launchers
    from ..executor.compiled_program import CompiledProgram
    from ..executor.device.place import (
        CPUPlace,
        CUDAPinnedPlace,
        CUDAPlace,
        cpu_places,
        cuda_pinned_places,
        cuda_places,
    )
    from ..executor.device.tensor import (
        LoDTensor,
        Tensor,
        create_lod_tensor,
        create_random_int_lodtensor,
    )
    from ..executor.executor import Executor
    from ..executor.feed.scope import Scope, global_scope, scope_guard
    from ..executor.loading.data_feeder import DataFeeder
    from ..executor.parallel_executor import ParallelExecutor
    from ..graph.layers.io import checked_data as data
    from ..graph.layers.nn import embedding_v2 as embedding
    from ..graph.layers.param_attr import ParamAttr, WeightNormParamAttr
    from ..graph.layers.shape import one_hot_v2 as one_hot
    from ..graph.program.program import (
        Program,
        default_main_program,
        default_startup_program,
        program_guard,
    )
    from ..graph.program.scopes import device_guard, name_scope
    from ..graph.program.variable import Parameter, Variable
    from ..graph.training.backward import append_backward, gradients
    from ..graph.training.clip import set_gradient_clip
    from ..names import missing, publish_listed
    from ..strategies.flags import get_flags, set_flags
    from ..version import require_version
    from . import (
        average,
        backward,
        clip,
        compiler,
        contrib,
        core,
        data_feeder,
        dataset,
        debugger,
        evaluator,
        executor,
        framework,
        incubate,
        initializer,
        install_check,
        io,
        layer_helper,
        layers,
        metrics,
        nets,
        optimizer,
        param_attr,
        profiler,
        reader,
        regularizer,
        transpiler,
        unique_name,
    )
    from .core import LoDTensorArray, is_compiled_with_cuda
    from .dataset import DatasetFactory, InMemoryDataset, QueueDataset
    from .framework import disable_dygraph, disable_imperative, in_dygraph_mode
    from .io import load, load_program_state, save, set_program_state
    from .transpiler import (
        DistributeTranspiler,
        DistributeTranspilerConfig,
        HashName,
        RoundRobin,
        memory_optimize,
        release_memory,
    )


if TYPE_CHECKING:  # what is imported when it is first named
    from . import dygraph as dygraph
    from .compiler import BuildStrategy, ExecutionStrategy
else:  # to type checkers any name would be there

    def __getattr__(name: str) -> Any:
        if name in ("BuildStrategy", "ExecutionStrategy"):  # they import Pydantic
            return getattr(compiler, name)
        if name == "dygraph":  # it imports rowlock.nn
            return importlib.import_module(".dygraph", __name__)
        return missing(__name__)(name)


__all__ = [
    "BuildStrategy",
    "CPUPlace",
    "CUDAPinnedPlace",
    "CUDAPlace",
    "CompiledProgram",
    "DataFeeder",
    "DatasetFactory",
    "DistributeTranspiler",
    "DistributeTranspilerConfig",
    "ExecutionStrategy",
    "Executor",
    "HashName",
    "InMemoryDataset",
    "LoDTensor",
    "LoDTensorArray",
    "ParallelExecutor",
    "ParamAttr",
    "Parameter",
    "Program",
    "QueueDataset",
    "RoundRobin",
    "Scope",
    "Tensor",
    "Variable",
    "WeightNormParamAttr",
    "append_backward",
    "average",
    "backward",
    "clip",
    "compiler",
    "contrib",
    "core",
    "cpu_places",
    "create_lod_tensor",
    "create_random_int_lodtensor",
    "cuda_pinned_places",
    "cuda_places",
    "data",
    "data_feeder",
    "dataset",
    "debugger",
    "default_main_program",
    "default_startup_program",
    "device_guard",
    "disable_dygraph",
    "disable_imperative",
    "dygraph",
    "embedding",
    "evaluator",
    "executor",
    "framework",
    "get_flags",
    "global_scope",
    "gradients",
    "in_dygraph_mode",
    "incubate",
    "initializer",
    "install_check",
    "io",
    "is_compiled_with_cuda",
    "layer_helper",
    "layers",
    "load",
    "load_program_state",
    "memory_optimize",
    "metrics",
    "name_scope",
    "nets",
    "one_hot",
    "optimizer",
    "param_attr",
    "profiler",
    "program_guard",
    "reader",
    "regularizer",
    "release_memory",
    "require_version",
    "save",
    "scope_guard",
    "set_flags",
    "set_gradient_clip",
    "set_program_state",
    "transpiler",
    "unique_name",
]

publish_listed(__name__)
