"""What a collective fleet does with an optimizer and its program, whichever Paddle's strategy asks for it."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any, NoReturn

from ...executor.driver.mixed_precision import OptimizerWithMixedPrecision
from ...graph.training.amp.lists import AutoMixedPrecisionLists, AutoMixedPrecisionLists18
from ...graph.training.amp.optimizer import MixedPrecision, Scaling
from ...graph.training.amp.rewrite import Rules
from ...graph.training.optimizer import (
    AdamOptimizer,
    DGCMomentumOptimizer,
    GradientMergeOptimizer,
    LambOptimizer,
    LarsMomentumOptimizer,
    MomentumOptimizer,
    RecomputeOptimizer,
    SGDOptimizer,
)
from ...strategies.errors import InvalidArgument, InvalidType, InvalidValue, Unsupported
from ...strategies.flags import set_flags
from ...strategies.types import VarType

if TYPE_CHECKING:
    from ...strategies.build import BuildStrategy
    from ...strategies.distributed import AmpConfigs
    from ...strategies.distributed import DistributedStrategy as Strategy2x
    from ...strategies.execution import ExecutionStrategy
    from ...strategies.fleet import DistributedStrategy as Strategy1x


@dataclass(frozen=True)
class Training:
    """How workers train together.

    ``mode`` and ``collective_mode`` are the transpiler's; ``wrapped`` returns the optimizer that the strategy
    makes of a user's; ``hints`` names switches without effect.
    """

    mode: str
    collective_mode: str | None
    build: BuildStrategy
    execution: ExecutionStrategy
    nccl_comm_num: int
    use_hierarchical_allreduce: bool
    hierarchical_allreduce_inter_nranks: int
    wrapped: Callable[[Any], Any]
    hints: tuple[str, ...] = ()


def training_of(strategy: Any, workers: int) -> Training:
    """Return what a DistributedStrategy of either Paddle asks of so many workers.

    Raises:
        InvalidArgument, InvalidValue: switches that do not go together.
        Unsupported: a switch that is not built.
    """
    from ...strategies.distributed import DistributedStrategy

    if isinstance(strategy, DistributedStrategy):
        return _training_2x(strategy, workers)
    return _training_1x(strategy)


# -- Paddle 1.x ---------------------------------------------------------------------------------------


def _training_1x(strategy: Strategy1x) -> Training:
    if strategy.use_dist_fc:
        raise Unsupported(
            "DistributedStrategy.use_dist_fc: a classifier's classes cannot be divided among workers."
        )
    if strategy.use_local_sgd:
        strategy.mode, strategy.collective_mode = "collective", "local_sgd"
    if strategy.collective_mode is not None and strategy.mode != "collective":
        raise InvalidArgument(
            f"DistributedStrategy.collective_mode={strategy.collective_mode!r} needs mode='collective', it is "
            f"{strategy.mode!r}."
        )
    return Training(
        strategy.mode,
        strategy.collective_mode,
        strategy.build_strategy(),
        strategy.exec_strategy,
        strategy.nccl_comm_num,
        strategy.use_hierarchical_allreduce,
        strategy.hierarchical_allreduce_inter_nranks,
        lambda optimizer: _wrap_1x(strategy, optimizer),
    )


def _wrap_1x(strategy: Strategy1x, optimizer: Any) -> Any:
    """Put recomputation and mixed precision around an optimizer, as asked for."""
    if strategy.use_local_sgd and isinstance(optimizer, DGCMomentumOptimizer):
        _refuse_twice("use_local_sgd", optimizer)
    if strategy.forward_recompute:
        optimizer = _recomputing(
            "forward_recompute", "recompute_checkpoints", optimizer, strategy.recompute_checkpoints
        )
    if strategy.use_amp:
        if isinstance(optimizer, (MixedPrecision, DGCMomentumOptimizer)):
            _refuse_twice("use_amp", optimizer)
        rules = Rules(AutoMixedPrecisionLists18(), eager=False)
        scaling = Scaling(strategy.amp_loss_scaling, dynamic=True)
        optimizer = OptimizerWithMixedPrecision(optimizer, rules, scaling, skips=False)
    return optimizer


def _recomputing(switch: str, where: str, optimizer: Any, checkpoints: list[Any]) -> Any:
    if not checkpoints:
        raise InvalidValue(
            f"DistributedStrategy.{switch} needs {where}: variables whose values are kept."
        )
    if isinstance(optimizer, (RecomputeOptimizer, MixedPrecision)):
        _refuse_twice(switch, optimizer)
    optimizer = RecomputeOptimizer(optimizer)
    optimizer._set_checkpoints(checkpoints)
    return optimizer


# -- Paddle 2.x ---------------------------------------------------------------------------------------


def _training_2x(strategy: Strategy2x, workers: int) -> Training:
    hints = strategy.hints()
    degree = strategy.hybrid_configs.dp_degree
    if degree not in (-1, workers):
        raise InvalidValue(
            f"DistributedStrategy.hybrid_configs: dp_degree is {degree}, and there are {workers} workers, all "
            f"data parallel. Leave it at -1."
        )
    if strategy.fuse_grad_size_in_MB != type(strategy).model_fields["fuse_grad_size_in_MB"].default:
        set_flags({"FLAGS_fuse_parameter_memory_size": float(strategy.fuse_grad_size_in_MB)})
    local = strategy.localsgd and workers > 1
    return Training(
        "collective" if local else "nccl2",
        "local_sgd" if local else None,
        _build_2x(strategy),
        strategy.execution_strategy,
        strategy.nccl_comm_num,
        strategy.use_hierarchical_allreduce,
        strategy.hierarchical_allreduce_inter_nranks,
        lambda optimizer: _wrap_2x(strategy, optimizer, workers),
        tuple(hints),
    )


def _build_2x(strategy: Strategy2x) -> BuildStrategy:
    from ...strategies.build import GradientScaleStrategy

    build = strategy.build_strategy.model_copy()
    build.sync_batch_norm |= strategy.sync_batch_norm
    build.fuse_all_reduce_ops &= strategy.fuse_all_reduce_ops
    scale = strategy.gradient_scale_configs.scale_strategy
    if scale != "avg":
        named = {"sum": GradientScaleStrategy.One, "customized": GradientScaleStrategy.Customized}
        build.gradient_scale_strategy = named[scale]
    return build


def _wrap_2x(strategy: Strategy2x, optimizer: Any, workers: int) -> Any:
    """Replace an optimizer as asked for, and put the others' work around it: mixed precision outermost."""
    optimizer = _method(strategy, optimizer, workers)
    if strategy.localsgd and isinstance(optimizer, DGCMomentumOptimizer):
        _refuse_twice("localsgd", optimizer)
    if strategy.localsgd and not isinstance(optimizer, (SGDOptimizer, MomentumOptimizer)):
        raise InvalidType(
            f"DistributedStrategy.localsgd goes with SGD and Momentum, got {type(optimizer).__name__}."
        )
    if strategy.recompute:
        checkpoints = list(strategy.recompute_configs.checkpoints)
        where = 'recompute_configs = {"checkpoints": [...]}'
        optimizer = _recomputing("recompute", where, optimizer, checkpoints)
    merged = strategy.gradient_merge_configs
    if strategy.gradient_merge and merged.k_steps > 1:
        if isinstance(optimizer, MixedPrecision):
            _refuse_twice("gradient_merge", optimizer)
        optimizer = GradientMergeOptimizer(optimizer, merged.k_steps, merged.avg)
    if strategy.amp:
        if isinstance(optimizer, (MixedPrecision, DGCMomentumOptimizer)):
            _refuse_twice("amp", optimizer)
        optimizer = _mixed(strategy.amp_configs, optimizer)
    return optimizer


def _method(strategy: Strategy2x, optimizer: Any, workers: int) -> Any:
    """Return the optimizer that lars, lamb or dgc make of Momentum or Adam."""
    switches = [name for name in ("lars", "lamb", "dgc") if getattr(strategy, name)]
    if not switches:
        return optimizer
    if len(switches) > 1:
        raise InvalidValue(
            f"DistributedStrategy: {' and '.join(switches)} are different optimizers. Switch one on."
        )
    (switch,) = switches
    kind = AdamOptimizer if switch == "lamb" else MomentumOptimizer
    if not isinstance(optimizer, kind) or isinstance(
        optimizer, (LambOptimizer, DGCMomentumOptimizer)
    ):
        raise InvalidType(
            f"DistributedStrategy.{switch} takes the place of {kind.__name__.removesuffix('Optimizer')}, got "
            f"{type(optimizer).__name__}."
        )
    attrs, rate = optimizer._attrs, optimizer._learning_rate
    common: dict[str, Any] = {
        "parameter_list": optimizer._parameter_list,
        "regularization": optimizer.regularization,
        "grad_clip": optimizer._grad_clip,
        "name": optimizer._name,
    }
    if isinstance(optimizer, AdamOptimizer):
        return _lamb(strategy, optimizer, common)
    if switch == "lars":
        lars = strategy.lars_configs
        excluded = tuple(lars.exclude_from_weight_decay)
        coefficients = (lars.lars_coeff, lars.lars_weight_decay)
        return LarsMomentumOptimizer(
            rate, attrs["mu"], *coefficients, **common, exclude_from_weight_decay=excluded
        )
    dgc = strategy.dgc_configs
    ramp = (dgc.rampup_begin_step, dgc.rampup_step, tuple(dgc.sparsity) or (0.999,))
    return DGCMomentumOptimizer(
        rate,
        attrs["mu"],
        *ramp,
        use_nesterov=attrs["use_nesterov"],
        num_trainers=workers,
        **common,
    )


def _lamb(strategy: Strategy2x, adam: AdamOptimizer, common: dict[str, Any]) -> LambOptimizer:
    """Return a Lamb whose moments are corrected for their bias, as Paddle 2.x's are."""
    excluded = tuple(strategy.lamb_configs.exclude_from_weight_decay)
    lamb = LambOptimizer(
        adam._learning_rate,
        strategy.lamb_configs.lamb_weight_decay,
        **{name: adam._attrs[name] for name in ("beta1", "beta2", "epsilon")},
        exclude_from_weight_decay_fn=lambda p: bool(excluded) and p.name.endswith(excluded),
        **common,
    )
    lamb.correct_bias()
    return lamb


def _mixed(configs: AmpConfigs, optimizer: Any) -> OptimizerWithMixedPrecision:
    pure = configs.use_pure_fp16 or configs.use_pure_bf16
    dtype = VarType.BF16 if configs.use_pure_bf16 else VarType.FP16
    lists = AutoMixedPrecisionLists(
        configs.custom_white_list, configs.custom_black_list, configs.custom_black_varnames
    )
    rules = Rules(lists, dtype)
    if pure:
        rules = replace(rules, level="O2", guard=configs.use_fp16_guard)
    scaling = Scaling(
        configs.init_loss_scaling,
        configs.use_dynamic_loss_scaling,
        configs.incr_every_n_steps,
        configs.decr_every_n_nan_or_inf,
        configs.incr_ratio,
        configs.decr_ratio,
    )
    if dtype == VarType.BF16:
        scaling = replace(scaling, start=1.0, dynamic=False)
    return OptimizerWithMixedPrecision(optimizer, rules, scaling)


def _refuse_twice(switch: str, optimizer: Any) -> NoReturn:
    raise InvalidValue(
        f"DistributedStrategy.{switch} does not go with {type(optimizer).__name__}: leave one of them out."
    )
