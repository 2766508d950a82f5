"""_finalize_strategy_and_create_passes lists what Paddle 1.8.5 lists on CPU: recorded by running it."""

from __future__ import annotations

from typing import Any

import pytest

from rowlock.strategies.build import BuildStrategy

DEFAULT = (
    "coalesce_grad_tensor add_reader_dependency all_reduce_mode_multi_devices fuse_all_reduce_op "
    "all_reduce_deps modify_op_lock_and_record_event multi_devices_check"
)
EVERYTHING = (
    "graph_viz sequential_execution sync_batch_norm fuse_relu_depthwise_conv fuse_bn_act "
    "fuse_elewise_add_act coalesce_grad_tensor fuse_adam_op fuse_sgd_op fuse_momentum_op graph_viz "
    "add_reader_dependency all_reduce_mode_multi_devices fuse_all_reduce_op multi_devices_print "
    "all_reduce_deps runtime_context_cache modify_op_lock_and_record_event multi_devices_check"
)
ON = dict.fromkeys(
    (
        "fuse_elewise_add_act_ops", "fuse_bn_act_ops", "fuse_relu_depthwise_conv", "enable_auto_fusion",
        "fuse_all_optimizer_ops", "sync_batch_norm", "cache_runtime_context",
        "enable_sequential_execution", "fuse_all_reduce_ops",
    ),
    True,
)  # fmt: skip
TO_OWNERS = {"reduce_strategy": BuildStrategy.ReduceStrategy.Reduce}


@pytest.mark.parametrize(
    ("fields", "wanted"),
    [
        ({}, DEFAULT),
        ({**ON, "debug_graphviz_path": "x"}, EVERYTHING),
        (
            TO_OWNERS,
            "add_reader_dependency reduce_mode_multi_devices modify_op_lock_and_record_event "
            "multi_devices_check",
        ),
        (
            {**TO_OWNERS, "num_trainers": 2},
            "add_reader_dependency reduce_mode_multi_devices all_reduce_deps backward_optimizer_op_deps "
            "modify_op_lock_and_record_event multi_devices_check",
        ),
        (
            {**TO_OWNERS, "num_trainers": 2, "enable_sequential_execution": True},
            "sequential_execution add_reader_dependency reduce_mode_multi_devices "
            "backward_optimizer_op_deps modify_op_lock_and_record_event multi_devices_check",
        ),
        (
            {"is_distribution": True, "fuse_all_optimizer_ops": True},
            "add_reader_dependency dist_multi_devices all_reduce_deps modify_op_lock_and_record_event "
            "multi_devices_check",
        ),
        (
            {"async_mode": True, "is_distribution": True, "num_trainers": 2},
            "add_reader_dependency async_multi_devices all_reduce_deps modify_op_lock_and_record_event "
            "multi_devices_check",
        ),
    ],
)
def test_pass_names(fields: dict[str, Any], wanted: str) -> None:
    builder = BuildStrategy(**fields)._finalize_strategy_and_create_passes()
    assert [entry.type() for entry in builder.all_passes()] == [
        f"{name}_pass" for name in wanted.split()
    ]
