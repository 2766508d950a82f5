"""BuildStrategy: how a program's graph is compiled."""

from __future__ import annotations

from enum import Enum
from typing import Annotated, ClassVar, Literal

from pydantic import BeforeValidator

from .base import Strategy, effect, flag, hint, semantic


class ReduceStrategy(Enum):
    """How gradients are reduced: everywhere (AllReduce), at one owner each (Reduce), or not at all."""

    AllReduce = 0
    Reduce = 1
    _NoReduce = 2


class GradientScaleStrategy(Enum):
    """The seed of each place's backward pass: 1/N, 1, a fed ``loss@GRAD``, or its share of the samples.

    With SampleWeighted (not in Paddle) every sample weighs the same, however a batch was split: for a loss
    that is a mean over its samples, gradients are those of one place that sees the whole batch. A place may
    get no rows.
    """

    CoeffNumDevice = 0
    One = 1
    Customized = 2
    SampleWeighted = 3


_Reduce = ReduceStrategy  # the class below has attributes of these names
_Scale = GradientScaleStrategy
Flag = Annotated[bool, BeforeValidator(flag)]


class BuildStrategy(Strategy):
    """Switches of the compiler. Names and defaults are Paddle's.

    A field that only hints and has no effect yet is accepted, and ``explain()`` lists it; one that would
    change results and is not built yet is refused when the program is compiled.
    """

    ReduceStrategy: ClassVar[type[Enum]] = ReduceStrategy
    GradientScaleStrategy: ClassVar[type[Enum]] = GradientScaleStrategy
    frozen_by_finalize: ClassVar[frozenset[str]] = frozenset(
        {
            "reduce_strategy", "gradient_scale_strategy", "debug_graphviz_path",
            "enable_sequential_execution", "remove_unnecessary_lock", "fuse_elewise_add_act_ops",
            "fuse_bn_act_ops", "fuse_relu_depthwise_conv", "enable_auto_fusion", "fuse_broadcast_ops",
            "fuse_all_optimizer_ops", "sync_batch_norm",
        }
    )  # fmt: skip

    reduce_strategy: _Reduce = effect(_Reduce.AllReduce)
    gradient_scale_strategy: _Scale = effect(_Scale.CoeffNumDevice)
    debug_graphviz_path: str = effect("")
    verify_passes: Flag = effect(False)  # not in Paddle: the first step checks each pass's result
    enable_sequential_execution: Flag = effect(False)
    sequential_run: Flag = effect(False)
    fuse_all_reduce_ops: Flag = effect(True)
    fuse_broadcast_ops: Flag = effect(True)
    remove_unnecessary_lock: Flag = effect(True)
    is_distribution: Flag = effect(False)  # compiling overwrites it, as in Paddle
    sync_batch_norm: Flag = effect(False)
    fuse_all_optimizer_ops: Flag = effect(False)
    fuse_adamw: Flag = effect(False)
    enable_auto_fusion: Flag = effect(False)
    fused_attention: Flag = effect(False)
    fused_feedforward: Flag = effect(False)
    fuse_dot_product_attention: Flag = effect(False)
    build_cinn_pass: Flag = effect(False)
    mkldnn_enabled_op_types: set[str] = effect(set())  # older name of the next
    onednn_enabled_op_types: set[str] = effect(set())  # the only ops for oneDNN; none: all it can
    fuse_relu_depthwise_conv: Flag = effect(False)
    fuse_bn_act_ops: Flag = effect(False)
    fuse_bn_add_act_ops: Flag = effect(True)
    fuse_gemm_epilogue: Flag = effect(False)
    fuse_elewise_add_act_ops: Flag = effect(False)
    # Not in Paddle. "bfloat16" rounds the factors of products that oneDNN computes, and adds in float32, where
    # processors have instructions for that.
    cpu_math: Literal["float32", "bfloat16"] = effect("float32")
    # Not in Paddle. "tf32" rounds the factors of products that cuBLASLt and cuDNN compute to 10 bits.
    gpu_math: Literal["float32", "tf32"] = effect("float32")
    # Not in Paddle. On GPUs cuDNN drops weights of attention by numbers of its own: other ones than on CPUs.
    cudnn_attention_dropout: Flag = effect(False)
    # Not in Paddle. Gradients in low precision are widened before they are summed over the places.
    reduce_in_float32: Flag = effect(False)
    # Not in Paddle. None: as FLAGS_measure_kernels says. False: kernels are chosen by rule alone.
    measure_kernels: bool | None = effect(None)
    memory_optimize: bool | None = effect(None)  # None: on
    allow_cuda_graph_capture: bool | None = effect(None)  # None: on (Paddle's default is off)
    enable_inplace: Flag = effect(True)
    enable_addto: Flag = effect(False)
    num_trainers: int = effect(1)
    trainer_id: int = effect(0)
    trainers_endpoints: list[str] = effect([])
    async_mode: Flag = semantic(False)

    fuse_resunit: Flag = hint(False)
    enable_backward_optimizer_op_deps: Flag = hint(True)
    cache_runtime_context: Flag = hint(False)
    bkcl_comm_num: int = hint(1, ge=1)
    nccl_comm_num: int = hint(1, ge=1)
    use_hierarchical_allreduce: Flag = hint(False)
    hierarchical_allreduce_inter_nranks: int = hint(0, ge=0)

    def _finalize_strategy_and_create_passes(self) -> PassBuilder:
        """Freeze the switches that decide which passes run, and return Paddle's names of those passes."""
        self._finalized = True
        return PassBuilder(_pass_names(self))


class PassName:
    """The name of one pass, as Paddle's pass builder lists it."""

    def __init__(self, name: str) -> None:
        self._name = name

    def type(self) -> str:
        """Return the name."""
        return self._name


class PassBuilder:
    """Paddle's names of the passes of a finalized strategy. Only the switches decide."""

    def __init__(self, names: list[str]) -> None:
        self._passes = [PassName(name) for name in names]

    def all_passes(self) -> list[PassName]:
        """Return the passes in order."""
        return list(self._passes)


def _pass_names(build: BuildStrategy) -> list[str]:
    """Return the passes that Paddle 1.8.5 lists on CPU; later fusions have no names there."""
    mode = _multi_devices_mode(build)
    all_reduce = build.reduce_strategy is _Reduce.AllReduce
    # no packing for owners, servers, or trainers that do not wait
    packs = mode == "all_reduce_mode"
    several = build.num_trainers > 1
    waits = not build.async_mode and not build.is_distribution
    switches = (
        ("graph_viz_pass", bool(build.debug_graphviz_path)),
        ("sequential_execution_pass", build.enable_sequential_execution),
        ("sync_batch_norm_pass", build.sync_batch_norm),
        ("fuse_relu_depthwise_conv_pass", build.fuse_relu_depthwise_conv),
        ("fuse_bn_act_pass", build.fuse_bn_act_ops),
        ("fuse_elewise_add_act_pass", build.fuse_elewise_add_act_ops),
        ("coalesce_grad_tensor_pass", packs and build.fuse_all_reduce_ops),
        ("fuse_adam_op_pass", packs and build.fuse_all_optimizer_ops),
        ("fuse_sgd_op_pass", packs and build.fuse_all_optimizer_ops),
        ("fuse_momentum_op_pass", packs and build.fuse_all_optimizer_ops),
        ("graph_viz_pass", bool(build.debug_graphviz_path)),
        ("add_reader_dependency_pass", True),
        (f"{mode}_multi_devices_pass", bool(mode)),
        ("fuse_all_reduce_op_pass", packs and build.fuse_all_reduce_ops),
        ("multi_devices_print_pass", bool(build.debug_graphviz_path)),
        ("all_reduce_deps_pass", all_reduce or (several and not build.enable_sequential_execution)),
        (
            "backward_optimizer_op_deps_pass",
            several and waits and build.enable_backward_optimizer_op_deps,
        ),
        ("runtime_context_cache_pass", build.cache_runtime_context),
        ("modify_op_lock_and_record_event_pass", build.remove_unnecessary_lock),
        ("multi_devices_check_pass", True),
    )
    return [name for name, is_on in switches if is_on]


def _multi_devices_mode(build: BuildStrategy) -> str:
    if build.async_mode:
        return "async"
    if build.is_distribution:
        return "dist"
    modes = {_Reduce.AllReduce: "all_reduce_mode", _Reduce.Reduce: "reduce_mode"}
    return modes.get(build.reduce_strategy, "")
