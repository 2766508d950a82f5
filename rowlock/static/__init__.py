"""Paddle 2.x's static-graph front: ``paddle.static``."""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING, Any

from .. import tensor as _methods  # noqa: F401 - it gives Variable its methods
from ..cluster import launch as _launch  # noqa: F401 - registers the launchers
from ..executor.compiled_program import CompiledProgram
from ..executor.device.place import cpu_places, cuda_places
from ..executor.executor import Executor
from ..executor.feed.scope import Scope, global_scope, scope_guard
from ..executor.parallel_executor import ParallelExecutor
from ..functions.places import setitem
from ..graph.layers.io import create_global_var, create_parameter
from ..graph.layers.loss import accuracy
from ..graph.layers.metric import auc, ctr_metric_bundle
from ..graph.layers.param_attr import WeightNormParamAttr
from ..graph.layers.printing import Print as _print
from ..graph.layers.python_function import py_func
from ..graph.program.program import (
    Program,
    default_main_program,
    default_startup_program,
    program_guard,
)
from ..graph.program.scopes import device_guard, name_scope
from ..graph.program.variable import Variable
from ..graph.training.backward import append_backward, gradients
from ..graph.training.optimizer import ExponentialMovingAverage
from ..names import missing, publish_listed
from . import amp, io, nn
from .input_spec import InputSpec
from .io import (
    deserialize_persistables,
    deserialize_program,
    load,
    load_from_file,
    load_inference_model,
    load_program_state,
    normalize_program,
    save,
    save_inference_model,
    save_to_file,
    serialize_persistables,
    serialize_program,
    set_program_state,
)

_LAZY = {"BuildStrategy": "build", "ExecutionStrategy": "execution"}


def data(name: str, shape: Any, dtype: Any = None, lod_level: int = 0) -> Variable:
    """Declare a variable to feed: None is an unknown size; feeds must fit. Default: float32."""
    from ..graph.layers.io import checked_data

    return checked_data(name, shape, "float32" if dtype is None else dtype, lod_level)


def Print(
    input: Variable,
    first_n: int = -1,
    message: str | None = None,
    summarize: int = 20,
    print_tensor_name: bool = True,
    print_tensor_type: bool = True,
    print_tensor_shape: bool = True,
    print_tensor_layout: bool = True,
    print_tensor_lod: bool = True,
    print_phase: str = "both",
) -> Variable:
    """Return ``input``, which is printed as by ``fluid.layers.Print``; the text has no layout."""
    return _print(
        input,
        first_n,
        message,
        summarize,
        print_tensor_name,
        print_tensor_type,
        print_tensor_shape,
        print_tensor_lod,
        print_phase,
    )


if TYPE_CHECKING:
    from ..strategies.build import BuildStrategy
    from ..strategies.execution import ExecutionStrategy
else:  # to type checkers any name would be there

    def __getattr__(name: str) -> Any:
        if name in _LAZY:  # Pydantic is imported when a strategy is first named
            return getattr(importlib.import_module(f"..strategies.{_LAZY[name]}", __name__), name)
        return missing(__name__)(name)


__all__ = [
    "BuildStrategy",
    "CompiledProgram",
    "ExecutionStrategy",
    "Executor",
    "ExponentialMovingAverage",
    "InputSpec",
    "ParallelExecutor",
    "Print",
    "Program",
    "Scope",
    "Variable",
    "WeightNormParamAttr",
    "accuracy",
    "amp",
    "append_backward",
    "auc",
    "cpu_places",
    "create_global_var",
    "create_parameter",
    "ctr_metric_bundle",
    "cuda_places",
    "data",
    "default_main_program",
    "default_startup_program",
    "deserialize_persistables",
    "deserialize_program",
    "device_guard",
    "global_scope",
    "gradients",
    "io",
    "load",
    "load_from_file",
    "load_inference_model",
    "load_program_state",
    "name_scope",
    "nn",
    "normalize_program",
    "program_guard",
    "py_func",
    "save",
    "save_inference_model",
    "save_to_file",
    "scope_guard",
    "serialize_persistables",
    "serialize_program",
    "set_program_state",
    "setitem",
]

publish_listed(__name__)
