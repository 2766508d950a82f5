"""Rowlock: static-graph training programs, data-parallel on a Ray cluster, with PaddlePaddle's API.

``import rowlock as paddle`` and ``import rowlock.fluid as fluid`` are enough for a Paddle program. Modules are
imported on first use: neither Ray nor Pydantic before they are needed.
"""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING, Any

from .tracebacks import install as _install

if TYPE_CHECKING:  # what a package that can be called is to type checkers
    from .cluster.launch import cluster as cluster

__version__ = "0.1.0"

_SUBPACKAGES = (
    "cluster",
    "compat",
    "dataset",
    "device",
    "distributed",
    "distribution",
    "fluid",
    "framework",
    "geometric",
    "incubate",
    "inference",
    "io",
    "linalg",
    "metric",
    "nn",
    "optimizer",
    "reader",
    "regularizer",
    "static",
    "utils",
    "version",
    "vision",
)
_CONSTANTS = (  # of ``functions/constants.py``
    *("bool", "uint8", "int8", "int16", "int32", "int64", "float16", "bfloat16", "float32"),
    *("half", "float", "double"),
    *("float64", "e", "inf", "nan", "pi", "newaxis"),
)
_FUNCTIONAL = (
    *("adaptive_avg_pool1d", "conv1d", "conv2d", "conv3d", "group_norm", "layer_norm", "softmax"),
)
_ROOMS = ("functions", "demo", "executor", "graph", "strategies")
LAZY_EXPORTS = {
    "CPUPlace": ".executor.device.place",
    "CUDAPinnedPlace": ".executor.device.place",
    "CUDAPlace": ".executor.device.place",
    "ParamAttr": ".graph.layers.param_attr",
    "batch": ".executor.loading.sample_readers",
    "check_numerics": ".executor.plan.numerics",
    "create_parameter": ".graph.layers.io",
    "configure": ".cluster.launch",
    "shutdown": ".cluster.launch",
    "ClusterConfig": ".strategies.cluster",
    "flops": ".nn.layer.overview",
    "get_cudnn_version": ".functions.framework",
    "get_flags": ".strategies.flags",
    "set_flags": ".strategies.flags",
    "is_compiled_with_cuda": ".fluid.core",
    "is_compiled_with_xpu": ".functions.framework",
    "load": ".functions.saving",
    "save": ".functions.saving",
    "summary": ".nn.layer.overview",
    **dict.fromkeys(_CONSTANTS, ".functions.constants"),
    **dict.fromkeys(_FUNCTIONAL, ".nn.functional"),
}


_install()


def enable_static() -> None:
    """Say that the program is written for Paddle 2.x: operators choose element types as there.

    Programs are always static here. Before this call quotients of integers, and fractions that meet integers,
    are cut to whole numbers as in Paddle 1.8; behind it they become float32.
    """
    from .graph.layers.operators import PROMOTION

    PROMOTION.is_on = True


def disable_static(place: Any = None) -> None:
    """Refuse.

    Raises:
        Unsupported: there is no imperative mode.
    """
    from .strategies.errors import Unsupported

    raise Unsupported("Rowlock runs static-graph programs; there is no imperative (dygraph) mode.")


def in_dynamic_mode() -> bool:
    """Return False: there is no imperative mode."""
    return False


def __getattr__(name: str) -> Any:
    if name in _SUBPACKAGES or name == "tensor":
        return importlib.import_module(f".{name}", __name__)
    if name in LAZY_EXPORTS:
        return getattr(importlib.import_module(LAZY_EXPORTS[name], __name__), name)
    if not name.startswith("_") and name not in _ROOMS:
        # "from . import" would come back here
        tensor = importlib.import_module(".tensor", __name__)
        if name in tensor.__all__:
            return getattr(tensor, name)
    from .names import missing

    return missing(__name__)(name)


def __dir__() -> list[str]:
    tensor = importlib.import_module(".tensor", __name__)
    functions = ("disable_static", "enable_static", "in_dynamic_mode")
    return sorted({*functions, *_SUBPACKAGES, *LAZY_EXPORTS, *tensor.__all__})
