"""Errors of the front door's modules for names that they lack, Paddle's among them."""

from __future__ import annotations

import importlib.abc
import importlib.machinery
import sys
from collections.abc import Callable, Sequence
from functools import cache
from pathlib import Path
from types import ModuleType
from typing import Any, NoReturn

COVERAGE = "docs/coverage.md"


# What to use instead of names that are not built.
CURES = {
    "paddle.DataParallel": "CompiledProgram(program).with_data_parallel(loss_name) runs it on many places.",
    "distributed.fleet.distributed_model": "Programs are static: distributed_optimizer is enough.",
    "distributed.fleet.distributed_scaler": "DistributedStrategy.amp scales the loss.",
    "distributed.fleet.launch": "python -m rowlock.distributed.launch starts workers, and servers by "
    "--server_num or --servers.",
    "distributed.spawn": "python -m rowlock.distributed.launch script.py starts workers.",
    "static.IpuCompiledProgram": "CPUPlace and CUDAPlace are what programs run on.",
    "static.IpuStrategy": "CPUPlace and CUDAPlace are what programs run on.",
    "static.ipu_shard_guard": "A program runs whole on each place.",
    "static.set_ipu_shard": "A program runs whole on each place.",
    "static.xpu_places": "CPUPlace and CUDAPlace are what programs run on.",
    "static.amp.debugging": "CompiledProgram.explain() tells which ops compute in low precision.",
    "static.nn.static_pylayer": "static.py_func calls Python functions as an op and as its gradient.",
    "paddle.amp": "static.amp.decorate(optimizer) trains programs in mixed precision.",
    "paddle.jit": "Programs are always static: build them under static.program_guard.",
    "paddle.Model": "Build a program from the layer, minimize its loss, and call Executor.run in a loop.",
    "paddle.Tensor": "Variables of programs are rowlock.tensor.Variable; fed arrays are NumPy's.",
    "vision.ops.decode_jpeg": "Decode images with Pillow, and feed arrays.",
    "vision.ops.read_file": "A step reads no files: feed arrays.",
    **dict.fromkeys(
        (
            "geometric.sample_neighbors",
            "geometric.weighted_sample_neighbors",
            "geometric.reindex_graph",
            "geometric.reindex_heter_graph",
            "incubate.graph_khop_sampler",
            "incubate.graph_reindex",
            "incubate.graph_sample_neighbors",
        ),
        "Sample neighbours in NumPy while a reader makes batches, and feed the edges.",
    ),
    "nn.utils.clip_grad_norm_": "Give the optimizer grad_clip=nn.ClipGradByGlobalNorm(norm).",
    "nn.utils.clip_grad_value_": "Give the optimizer grad_clip=nn.ClipGradByValue(limit).",
    "paddle.XPUPlace": "CPUPlace and CUDAPlace are what programs run on.",
    "paddle.get_cuda_rng_state": "Call paddle.seed: it decides what all places draw.",
    "paddle.grad": "Build gradients by paddle.static.gradients(targets, inputs).",
    "paddle.imag": "There are no complex numbers: keep the parts in two variables.",
    "paddle.real": "There are no complex numbers: keep the parts in two variables.",
    "paddle.set_cuda_rng_state": "Call paddle.seed: it decides what all places draw.",
    "fluid.DataFeedDesc": "fluid.DatasetFactory reads such files, for Executor.train_from_dataset.",
    "fluid.communicator": "Executor.run of a transpiled trainer's program exchanges with servers by itself.",
    "fluid.data_feed_desc": "fluid.DatasetFactory reads such files, for Executor.train_from_dataset.",
    "fluid.device_worker": "Executor.train_from_dataset runs steps: no worker is chosen.",
    "fluid.distribute_lookup_table": "DistributeTranspiler finds embedding(is_distributed=True) by itself.",
    "fluid.enable_dygraph": "Programs are always static: leave it out.",
    "fluid.proto": "program.desc.serialize_to_string() writes a program, Program.parse_from_string reads it.",
    "fluid.framework.load_op_library": "A library of Paddle's ops cannot be loaded: write the op from "
    "fluid.layers, or in Python, with its gradient, by fluid.layers.py_func.",
    "fluid.load_op_library": "A library of Paddle's ops cannot be loaded: write the op from fluid.layers, "
    "or in Python, with its gradient, by fluid.layers.py_func.",
    "fluid.layers.load": "In Paddle 1.8 its op has no result, so it never ran: fluid.io.load_vars(exe, folder, "
    "vars=[variable]) reads a file.",
    "fluid.layers.control_flow.ConditionalBlock": "fluid.layers.cond, or Switch, computes a branch.",
    "fluid.layers.device.get_places": "fluid.cpu_places() and fluid.cuda_places() list places.",
    "fluid.net_drawer": "BuildStrategy.debug_graphviz_path draws programs.",
    "fluid.debugger.draw_block_graphviz": "BuildStrategy.debug_graphviz_path draws programs.",
    "fluid.optimizer.PipelineOptimizer": "A program runs whole on each place: leave it out, or split the batch "
    "with GradientMergeOptimizer where memory is short.",
    "fluid.trainer_desc": "Executor.train_from_dataset runs steps: it takes no description of a trainer.",
    "fluid.trainer_factory": "Executor.train_from_dataset runs steps: it takes no description of a trainer.",
    "fluid.contrib.HDFSClient": "fluid.incubate.fleet.utils.hdfs.HDFSClient reads and writes files there.",
    "fluid.contrib.utils": "fluid.incubate.fleet.utils.hdfs.HDFSClient reads and writes files there.",
    "fluid.contrib.slim": "Here nothing prunes or quantizes. Leave its passes and Compressor out and the "
    "program trains in full precision (fluid.contrib.mixed_precision: in float16); distillation is a loss of "
    "two nets in one program, the teacher's variables with stop_gradient; models that save_inference_model "
    "writes can be quantized by Paddle itself.",
    "fluid.contrib.Compressor": "Nothing prunes or quantizes. Train the program itself by Executor.run.",
    "fluid.contrib.QuantizeTranspiler": "fluid.contrib.mixed_precision trains in float16; nothing quantizes.",
}


@cache
def paddle_names() -> dict[str, frozenset[str]]:
    """Return Paddle's public names by module, such as ``fluid.layers``; ``paddle`` is the top."""
    lines = (Path(__file__).parent / "paddle_names.txt").read_text().splitlines()
    modules = (line.partition(": ") for line in lines if not line.startswith("#"))
    return {module: frozenset(names.split()) for module, _, names in modules}


def publish_imports(module: str, *submodules: ModuleType) -> None:
    """Offer what a module imports: see :func:`publish_listed`.

    Such a module only imports, by ``from x import *`` or ``from x import y as y``, which type checkers take for
    an offer, too. Of modules in its namespace it offers those that are given.
    """

    def offered(value: Any) -> bool:
        if isinstance(value, ModuleType):
            return value in submodules
        return value is not publish_imports

    _publish(module, offered)


def publish_definitions(module: str, also: str = "", *, withhold: tuple[Any, ...] = ()) -> None:
    """Offer the functions and classes that a module defines, without ``withhold``: helpers of neighbours.

    ``also`` are names of what else it offers: values, and what it imports by ``from x import y as y``.
    """

    def offered(value: Any) -> bool:
        return getattr(value, "__module__", None) == module and value not in withhold

    _publish(module, offered, also)


def _publish(module: str, offered: Callable[[Any], bool], also: str = "") -> None:
    namespace = vars(sys.modules[module])
    public = [name for name in namespace if not name.startswith("_") and offered(namespace[name])]
    namespace["__all__"] = [*public, *also.split()]
    publish_listed(module)


def publish_listed(module: str) -> None:
    """Offer what ``__all__`` lists: set a module's ``__dir__`` and, if it has none, its ``__getattr__``.

    Its functions check their arguments from then on: see ``graph/layers/arguments.py``.
    """
    namespace = vars(sys.modules[module])
    if "rowlock.graph.program.variable" in sys.modules:  # no function takes variables before
        from .graph.layers.arguments import checked

        public = [name for name in namespace["__all__"] if name in namespace]
        namespace.update({name: checked(namespace[name]) for name in public})
    namespace["__dir__"] = listing(module)
    namespace.setdefault("__getattr__", missing(module))
    # With a path, ``from module import name`` asks finders (`_Refusals`) for a name that the module lacks.
    namespace.setdefault("__path__", [])


def missing(module: str) -> Callable[[str], NoReturn]:
    """Return a module's ``__getattr__``, whose error tells a name of Paddle's not built here from a mistake."""

    def refuse(name: str) -> NoReturn:
        # Without ``obj``, or Python adds a guess of its own.
        raise AttributeError(_refusal(module, name), name=name)

    return refuse


def listing(module: str) -> Callable[[], list[str]]:
    """Return a module's ``__dir__``: the names that users call."""
    return lambda: sorted(sys.modules[module].__all__)


class NotBuilt(ModuleNotFoundError):
    """An import of a name that a module of the front door lacks."""


class _Refusals(importlib.abc.MetaPathFinder):
    """Says why ``from rowlock.x import name`` or ``import rowlock.x.name`` finds nothing, and what to do.

    Python drops the text of a module's AttributeError from such an ImportError.
    """

    def find_spec(
        self, fullname: str, path: Sequence[str] | None, target: ModuleType | None = None
    ) -> importlib.machinery.ModuleSpec | None:
        """Return None for modules of others.

        Raises:
            NotBuilt: the name is Paddle's, or a mistake in the name of what a module offers.
        """
        module, _, name = fullname.rpartition(".")
        if module.split(".")[0] != _PACKAGE:
            return None
        parent = sys.modules.get(module)
        if hasattr(parent, "__all__") and name in dir(parent):  # it is there, and no module
            return None
        if "__dir__" in vars(parent) or _of_paddle(module, name):  # one whose names users import
            raise NotBuilt(_refusal(module, name))
        return None


_PACKAGE, _ALIAS = __name__.split(".")[0], "paddle"
sys.meta_path.append(_Refusals())


def _public(module: str) -> str:
    """Return the name by which a program imports a module: Paddle's if ``rowlock.alias`` gave it."""
    package = sys.modules[_PACKAGE]
    return _ALIAS + module.removeprefix(_PACKAGE) if sys.modules.get(_ALIAS) is package else module


def _of_paddle(module: str, name: str) -> str | None:
    """Return what to say of a name that Paddle has in a module, or None if it has none."""
    path = module.removeprefix("rowlock").removeprefix(".") or "paddle"
    if name not in paddle_names().get(path, ()) and f"{path}.{name}" not in CURES:
        return None
    cure = CURES.get(f"{path}.{name}", f"{COVERAGE} lists the names built.")
    return f"{path}.{name} is Paddle's, and Rowlock has not built it. {cure}"


def _refusal(module: str, name: str) -> str:
    from .strategies.errors import nearest

    if name.startswith("__"):  # Python looks these up in every module
        return f"module {_public(module)!r} has no attribute {name!r}"
    present = list(getattr(sys.modules.get(module), "__all__", ()))
    return _of_paddle(module, name) or (
        f"module {_public(module)!r} has no attribute {name!r}.{nearest(name, present)}"
    )
