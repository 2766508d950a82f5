"""BuildStrategy: how a program's graph is compiled."""

from __future__ import annotations

from enum import Enum
from typing import Annotated, ClassVar

from pydantic import BeforeValidator

from .base import Strategy, effect, flag, hint, semantic


class ReduceStrategy(Enum):
    """Where gradients meet: everywhere (AllReduce), at one owner each (Reduce), or nowhere."""

    AllReduce = 0
    Reduce = 1
    _NoReduce = 2


class GradientScaleStrategy(Enum):
    """What seeds the backward pass: 1/N, 1, or a fed ``loss@GRAD``."""

    CoeffNumDevice = 0
    One = 1
    Customized = 2


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

    reduce_strategy: _Reduce = semantic(_Reduce.AllReduce)
    gradient_scale_strategy: _Scale = effect(_Scale.CoeffNumDevice)
    debug_graphviz_path: str = effect("")
    # Plans run in program order, so what these two ask for always holds.
    enable_sequential_execution: Flag = effect(False)
    sequential_run: Flag = effect(False)
    fuse_all_reduce_ops: Flag | None = effect(True)
    sync_batch_norm: Flag = semantic(False)
    num_trainers: int = semantic(1)
    trainer_id: int = semantic(0)
    trainers_endpoints: list[str] = semantic([])
    is_distribution: Flag = semantic(False)
    async_mode: Flag = semantic(False)

    remove_unnecessary_lock: Flag = hint(True)
    fuse_elewise_add_act_ops: Flag = hint(False)
    fuse_bn_act_ops: Flag = hint(False)
    fuse_bn_add_act_ops: Flag = hint(True)
    fuse_relu_depthwise_conv: Flag = hint(False)
    fuse_gemm_epilogue: Flag = hint(False)
    fuse_dot_product_attention: Flag = hint(False)
    fuse_resunit: Flag = hint(False)
    fused_attention: Flag = hint(False)
    fused_feedforward: Flag = hint(False)
    fuse_adamw: Flag = hint(False)
    fuse_all_optimizer_ops: Flag = hint(False)
    fuse_broadcast_ops: Flag | None = hint(True)
    enable_auto_fusion: Flag = hint(False)
    build_cinn_pass: Flag = hint(False)
    memory_optimize: bool | None = hint(None)
    enable_inplace: Flag = hint(True)
    enable_addto: Flag = hint(False)
    enable_backward_optimizer_op_deps: Flag = hint(True)
    cache_runtime_context: Flag = hint(False)
    allow_cuda_graph_capture: Flag = hint(False)
    nccl_comm_num: int = hint(1, ge=1)
    bkcl_comm_num: int = hint(1, ge=1)
    use_hierarchical_allreduce: Flag = hint(False)
    hierarchical_allreduce_inter_nranks: int = hint(0, ge=0)
    mkldnn_enabled_op_types: set[str] = hint(set())
    onednn_enabled_op_types: set[str] = hint(set())

    def _finalize_strategy_and_create_passes(self) -> None:
        """Freeze the switches that decide which passes run."""
        self._finalized = True
