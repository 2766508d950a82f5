"""DistributedStrategy of Paddle 2.x: how a fleet trains, with and without servers."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Literal, NoReturn

from pydantic import Field

from .base import Strategy, effect, hint, semantic, unbuilt
from .build import BuildStrategy, Flag
from .errors import Unsupported, require_type
from .execution import ExecutionStrategy


class Configs(Strategy):
    """Settings of one switch: fields, and a mapping of their names, as Paddle's are read."""

    def keys(self) -> list[str]:
        """Return the names of the settings."""
        return list(type(self).model_fields)

    def __getitem__(self, name: str) -> Any:
        self._check_name(name)
        return getattr(self, name)

    def __setitem__(self, name: str, value: Any) -> None:
        setattr(self, name, value)

    def changed(self, settings: Any) -> Configs:
        """Return these settings with those of a mapping in their place.

        Raises:
            InvalidType: ``settings`` is no mapping.
            UnknownField: a name that is no setting.
            StrategyError: a value that a setting does not accept.
        """
        if isinstance(settings, type(self)):
            return settings.model_copy()
        require_type(settings, Mapping, f"{type(self).__name__}: expected a dict of settings")
        copy = self.model_copy()
        for name, value in settings.items():
            setattr(copy, name, list(value) if isinstance(value, (tuple, set)) else value)
        return copy


class AmpConfigs(Configs):
    """Settings of mixed precision: the arguments of ``static.amp.decorate``."""

    init_loss_scaling: float = effect(2.0**15, gt=0, strict=False)
    incr_every_n_steps: int = effect(1000, gt=0)
    decr_every_n_nan_or_inf: int = effect(2, gt=0)
    incr_ratio: float = effect(2.0, gt=1, strict=False)
    decr_ratio: float = effect(0.8, gt=0, lt=1, strict=False)
    use_dynamic_loss_scaling: Flag = effect(True)
    custom_white_list: list[str] = effect([])
    custom_black_list: list[str] = effect([])
    custom_black_varnames: list[str] = effect([])
    use_pure_fp16: Flag = effect(False)
    use_pure_bf16: Flag = effect(False)
    use_fp16_guard: Flag = effect(True)
    use_optimizer_fp16: Flag = semantic(False)


class RecomputeConfigs(Configs):
    """Which values recomputation keeps: ``checkpoints`` are variables or their names."""

    checkpoints: list[Any] = effect([])
    enable_offload: Flag = hint(False)
    checkpoint_shape: list[int] = hint([])
    enable_tuning: Flag = hint(False)
    refined_ops_patterns: list[Any] = hint([])


class GradientMergeConfigs(Configs):
    """Over how many steps gradients are added up, and whether their mean is taken."""

    k_steps: int = effect(1, gt=0)
    avg: Flag = effect(True)


class LocalSGDConfigs(Configs):
    """Workers average their parameters in every step."""

    k_steps: int = semantic(1, choices=(1,), gt=0)
    begin_step: int = effect(1, ge=0)  # before it, too, Paddle takes the mean in every step


class DGCConfigs(Configs):
    """From which step on gradients are compressed, and the shares that are kept back."""

    rampup_begin_step: int = effect(0, ge=0)
    rampup_step: int = effect(1, gt=0)
    sparsity: list[float] = effect([0.999], strict=False)


class LarsConfigs(Configs):
    """The arguments of LarsMomentum; parameters with an excluded word in their name do not decay."""

    lars_coeff: float = effect(0.001, strict=False)
    lars_weight_decay: float = effect(0.0005, strict=False)
    epsilon: float = semantic(0.0, choices=(0, 0.0), strict=False)
    exclude_from_weight_decay: list[str] = effect([])


class LambConfigs(Configs):
    """The arguments of Lamb; parameters whose name ends with an excluded word do not decay."""

    lamb_weight_decay: float = effect(0.01, strict=False)
    exclude_from_weight_decay: list[str] = effect([])


class AsyncConfigs(Configs):
    """How workers and servers keep step: with ``k_steps`` above 0 changes travel each so many steps (geo)."""

    k_steps: int = effect(-1)
    max_merge_var_num: int = hint(1)
    send_queue_size: int = hint(16)
    independent_recv_thread: Flag = hint(False)
    min_send_grad_num_before_recv: int = hint(1)
    thread_pool_size: int = hint(1)
    send_wait_times: int = hint(1)
    runtime_split_send_recv: Flag = hint(False)
    launch_barrier: Flag = hint(True)
    lr_decay_steps: int = hint(10)
    heter_worker_device_guard: str = semantic("cpu")
    use_ps_gpu: int = semantic(0, choices=(0, False), strict=False)
    use_gpu_graph: int = semantic(0, choices=(0, False), strict=False)


class GradientScaleConfigs(Configs):
    """The seed of the backward pass: 1/N ("avg"), 1 ("sum"), or a fed ``loss@GRAD`` ("customized")."""

    scale_strategy: Literal["avg", "sum", "customized"] = effect("avg")
    scale_gradient: Flag = semantic(False)


class HybridConfigs(Configs):
    """Along which axes a job is divided: data alone."""

    dp_degree: int = effect(-1)  # checked against the number of workers
    mp_degree: int = semantic(1, choices=(1,))
    pp_degree: int = semantic(1, choices=(1,))
    sharding_degree: int = semantic(1, choices=(1,))
    sep_degree: int = semantic(1, choices=(1,))


def _configs(kind: type[Configs]) -> Any:
    return Field(default_factory=kind, json_schema_extra={"built": "all"})


# Switches that divide a model, or change what is computed, in ways that are not built: what to do instead.
_CURES = {
    "sharding": "one worker whose BuildStrategy.reduce_strategy is Reduce divides updates among its places.",
    "pipeline": "a program runs whole on each place; recompute saves memory.",
    "tensor_parallel": "a program runs whole on each place; recompute saves memory.",
    "adaptive_localsgd": "localsgd takes the mean of parameters in every step.",
    "fp16_allreduce": "amp computes gradients in float16, and these travel as they are.",
    "asp": "nothing prunes programs.",
    "qat": "nothing quantizes programs.",
    "auto": "switch on what the program shall do.",
    "semi_auto": "programs are data parallel.",
    "auto_search": "programs are data parallel.",
    "adam_d2sum": "take the Adam of paddle.optimizer.",
    "heter_ccl_mode": "workers are of one kind.",
    "is_fl_ps_mode": "federated training is not built.",
    "with_coordinator": "federated training is not built.",
    "downpour_table_param": "tables on servers are those of static.nn.sparse_embedding.",
    "sparse_table_configs": "tables on servers are those of static.nn.sparse_embedding.",
}


class DistributedStrategy(Strategy):
    """Switches of a fleet's training. Names and defaults are Paddle 3.3.1's, and those of 2.x that it dropped.

    ``amp``, ``recompute``, ``gradient_merge``, ``lars``, ``lamb``, ``dgc`` and ``localsgd`` change the
    optimizer that ``fleet.distributed_optimizer`` is given; ``x_configs`` takes a dict and keeps the settings
    that it does not name. ``a_sync`` and ``a_sync_configs["k_steps"]`` choose how workers and servers keep
    step. ``build_strategy`` and ``execution_strategy`` are those of the compiled program. A switch that changes
    results and is not built is refused by ``minimize``; hints are accepted, and ``explain()`` lists them.
    """

    amp: Flag = effect(False)
    amp_configs: AmpConfigs = _configs(AmpConfigs)
    recompute: Flag = effect(False)
    recompute_configs: RecomputeConfigs = _configs(RecomputeConfigs)
    gradient_merge: Flag = effect(False)
    gradient_merge_configs: GradientMergeConfigs = _configs(GradientMergeConfigs)
    localsgd: Flag = effect(False)
    localsgd_configs: LocalSGDConfigs = _configs(LocalSGDConfigs)
    dgc: Flag = effect(False)
    dgc_configs: DGCConfigs = _configs(DGCConfigs)
    lars: Flag = effect(False)
    lars_configs: LarsConfigs = _configs(LarsConfigs)
    lamb: Flag = effect(False)
    lamb_configs: LambConfigs = _configs(LambConfigs)
    a_sync: Flag = effect(True)
    a_sync_configs: AsyncConfigs = _configs(AsyncConfigs)
    gradient_scale_configs: GradientScaleConfigs = _configs(GradientScaleConfigs)
    hybrid_configs: HybridConfigs = _configs(HybridConfigs)
    build_strategy: BuildStrategy = Field(
        default_factory=BuildStrategy, json_schema_extra={"built": "all"}
    )
    execution_strategy: ExecutionStrategy = Field(
        default_factory=ExecutionStrategy, json_schema_extra={"built": "all"}
    )
    sync_batch_norm: Flag = effect(False)
    fuse_all_reduce_ops: Flag = effect(True)
    fuse_grad_size_in_MB: int = effect(32)
    nccl_comm_num: int = effect(1, gt=0)
    use_hierarchical_allreduce: Flag = effect(False)
    hierarchical_allreduce_inter_nranks: int = effect(1)

    sharding: Flag = semantic(False)
    sharding_configs: Any = hint(None)
    pipeline: Flag = semantic(False)
    pipeline_configs: Any = hint(None)
    tensor_parallel: Flag = semantic(False)
    tensor_parallel_configs: Any = hint(None)
    adaptive_localsgd: Flag = semantic(False)
    adaptive_localsgd_configs: Any = hint(None)
    fp16_allreduce: Flag = semantic(False)
    asp: Flag = semantic(False)
    qat: Flag = semantic(False)
    qat_configs: Any = hint(None)
    auto: Flag = semantic(False)
    semi_auto: Flag = semantic(False)
    auto_search: Flag = semantic(False)
    adam_d2sum: Flag = semantic(False)
    heter_ccl_mode: Flag = semantic(False)
    is_fl_ps_mode: Flag = semantic(False)
    with_coordinator: Flag = semantic(False)
    downpour_table_param: Any = semantic(None)
    sparse_table_configs: Any = semantic(None)

    without_graph_optimization: Flag = hint(True)
    find_unused_parameters: Flag = hint(False)
    elastic: Flag = hint(False)
    sync_nccl_allreduce: Flag = hint(True)
    last_comm_group_size_MB: float = hint(1.0, strict=False)
    fuse_grad_size_in_num: int = hint(8)
    fuse_grad_merge: Flag = hint(False)
    cudnn_exhaustive_search: Flag = hint(False)
    cudnn_batchnorm_spatial_persistent: Flag = hint(False)
    conv_workspace_size_limit: int = hint(512)
    split_data: Flag = hint(True)
    trainer_desc_configs: Any = hint(None)
    fs_client_param: Any = hint(None)

    def __setattr__(self, name: str, value: Any) -> None:
        current = self.__dict__.get(name)
        if isinstance(current, Configs):
            value = current.changed(value)
        super().__setattr__(name, value)
        if name == "a_sync":  # as in Paddle: geo is asked for behind it
            super().__setattr__("a_sync_configs", self.a_sync_configs.changed({"k_steps": 0}))

    def hints(self) -> list[str]:
        """Return the fields and settings that were changed and have no effect.

        Raises:
            Unsupported: a switch that changes results and is not built; says what to do.
        """
        ignored, refusals = unbuilt(self)
        for name in refusals:
            field = name.partition("=")[0]
            _refuse(name, _CURES[field])
        for name, configs in self._in_force():
            settings, refusals = unbuilt(configs)
            ignored += [f"{name}.{setting}" for setting in settings]
            if refusals:
                _refuse(f"{name}[{', '.join(refusals)}]", "leave the default.")
        return ignored

    def _in_force(self) -> list[tuple[str, Configs]]:
        """Return the settings of switches that are on."""
        configs = (
            (name, value) for name, value in self.__dict__.items() if isinstance(value, Configs)
        )
        return [
            (name, value)
            for name, value in configs
            if getattr(self, name.removesuffix("_configs"), True) or name == "a_sync_configs"
        ]


def _refuse(switch: str, cure: str) -> NoReturn:
    raise Unsupported(f"DistributedStrategy.{switch} is not built: {cure}")
