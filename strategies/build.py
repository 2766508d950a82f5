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
    """Switches of the compiler. Names are Paddle's, and so are defaults unless said otherwise.

    A field that is a hint without effect is accepted, and ``explain()`` lists it; one that would change results
    and is not built is refused when the program is compiled. ``docs/compiler.md`` says what each buys.

    Gradients and places:
        reduce_strategy: AllReduce sums gradients everywhere; Reduce sums each at one place, which updates the
            parameter; _NoReduce has places train apart.
        gradient_scale_strategy: the seed of the backward pass on each of N places. CoeffNumDevice: 1/N. One: 1.
            Customized: what is fed for ``loss@GRAD``. SampleWeighted: the place's share of the samples.
        sync_batch_norm: batch norms take their statistics from all places.
        fuse_all_reduce_ops, fuse_broadcast_ops: gradients (parameters, in Reduce mode) travel in buckets.
        reduce_in_float32: low-precision gradients are widened before they are summed over places (ours).
        num_trainers, trainer_id, trainers_endpoints: several drivers train one program as one.

    Order:
        enable_sequential_execution, sequential_run: ops run one after another, in the order of the program.
        remove_unnecessary_lock: threads signal each other only where their own order does not tell.

    Fusions, forward and backward (off, but for fuse_bn_add_act_ops):
        fuse_elewise_add_act_ops: a sum and an activation. fuse_bn_act_ops, fuse_bn_add_act_ops: batch norm, a
            residual and an activation. fuse_relu_depthwise_conv: a relu and the convolution behind it.
        fuse_gemm_epilogue: a product, its bias and relu or gelu. fused_feedforward: a whole feed-forward block.
        fused_attention, fuse_dot_product_attention: attention, block by block, without its scores as a whole.
        enable_auto_fusion: neighbouring elementwise ops as one generated loop.
        fuse_all_optimizer_ops, fuse_adamw: updates by one rule as one call.
        build_cinn_pass: what lies between two collectives is compiled by XLA (extra ``xla``).

    Memory:
        memory_optimize (None: on): temporaries share memory. enable_inplace: a result takes an operand's place.
        enable_addto: gradients of one variable are added up as they are computed.

    Kernels and precision:
        measure_kernels (ours): choose by measurement (False: by rule; None: as FLAGS_measure_kernels says).
        onednn_enabled_op_types (mkldnn_enabled_op_types): the only op types for oneDNN; empty: all it can.
        cpu_math (ours): "bfloat16" has oneDNN round the factors of products; sums stay in float32.
        gpu_math (ours): "tf32" has cuBLASLt and cuDNN round them to 10 bits behind the point.
        cudnn_attention_dropout (ours): cuDNN drops weights of attention, by its own random numbers.
        allow_cuda_graph_capture (None: on, off in Paddle): a step on a GPU is captured and replayed.

    Debugging:
        debug_graphviz_path: where pictures of the graph are written, one behind each pass.
        verify_passes (ours): the first step compares the values before and after each pass.

    ``is_distribution`` is overwritten when a program is compiled, as in Paddle.
    """

    ReduceStrategy: ClassVar[type[_Reduce]] = ReduceStrategy
    GradientScaleStrategy: ClassVar[type[_Scale]] = GradientScaleStrategy
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
    verify_passes: Flag = effect(False)
    enable_sequential_execution: Flag = effect(False)
    sequential_run: Flag = effect(False)
    fuse_all_reduce_ops: Flag = effect(True)
    fuse_broadcast_ops: Flag = effect(True)
    remove_unnecessary_lock: Flag = effect(True)
    is_distribution: Flag = effect(False)
    sync_batch_norm: Flag = effect(False)
    fuse_all_optimizer_ops: Flag = effect(False)
    fuse_adamw: Flag = effect(False)
    enable_auto_fusion: Flag = effect(False)
    fused_attention: Flag = effect(False)
    fused_feedforward: Flag = effect(False)
    fuse_dot_product_attention: Flag = effect(False)
    build_cinn_pass: Flag = effect(False)
    mkldnn_enabled_op_types: set[str] = effect(set())
    onednn_enabled_op_types: set[str] = effect(set())
    fuse_relu_depthwise_conv: Flag = effect(False)
    fuse_bn_act_ops: Flag = effect(False)
    fuse_bn_add_act_ops: Flag = effect(True)
    fuse_gemm_epilogue: Flag = effect(False)
    fuse_elewise_add_act_ops: Flag = effect(False)
    cpu_math: Literal["float32", "bfloat16"] = effect("float32")
    gpu_math: Literal["float32", "tf32"] = effect("float32")
    cudnn_attention_dropout: Flag = effect(False)
    reduce_in_float32: Flag = effect(False)
    measure_kernels: bool | None = effect(None)
    memory_optimize: bool | None = effect(None)
    allow_cuda_graph_capture: bool | None = effect(None)
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
