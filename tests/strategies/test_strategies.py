"""Strategies: defaults, what each field accepts, and errors that help."""

from __future__ import annotations

import re
from typing import Any

import pytest

from rowlock.strategies.base import Strategy, unbuilt
from rowlock.strategies.build import BuildStrategy
from rowlock.strategies.cluster import ClusterConfig
from rowlock.strategies.errors import EnforceNotMet, StrategyError, UnknownField
from rowlock.strategies.execution import ExecutionStrategy


def test_defaults_are_the_documents() -> None:
    build, execution = BuildStrategy(), ExecutionStrategy()
    assert build.reduce_strategy is BuildStrategy.ReduceStrategy.AllReduce
    assert build.gradient_scale_strategy is BuildStrategy.GradientScaleStrategy.CoeffNumDevice
    assert build.memory_optimize is None
    assert (build.enable_inplace, build.remove_unnecessary_lock, build.fuse_bn_add_act_ops) == (
        True,
    ) * 3
    assert build.num_trainers == 1 and build.trainers_endpoints == []
    assert execution.num_iteration_per_drop_scope == 1
    assert execution.num_iteration_per_run == 1


@pytest.mark.parametrize(
    ("field", "value"),
    [
        ("sync_batch_norm", "yes"),
        ("fuse_bn_act_ops", 2),
        ("reduce_strategy", 1),
        ("reduce_strategy", "Reduce"),
        ("memory_optimize", "on"),
        ("debug_graphviz_path", 3),
        ("trainers_endpoints", "127.0.0.1:6174"),
        ("mkldnn_enabled_op_types", ["conv2d"]),
        ("num_trainers", 1.5),
    ],
)
def test_a_wrong_value_is_refused_when_assigned(field: str, value: Any) -> None:
    strategy = BuildStrategy()
    for error in (StrategyError, TypeError, ValueError, EnforceNotMet):
        with pytest.raises(error, match=re.escape(f"got {value!r}")):
            setattr(strategy, field, value)
    with pytest.raises(StrategyError):
        BuildStrategy(**{field: value})


@pytest.mark.parametrize("value", [-1, 1.5, None, "4"])
def test_thread_counts_are_whole(value: Any) -> None:
    with pytest.raises(StrategyError, match="num_threads"):
        ExecutionStrategy().num_threads = value


def test_an_unknown_field_names_the_nearest() -> None:
    message = "BuildStrategy has no field 'fuse_all_reduce_op'. Did you mean 'fuse_all_reduce_ops'?"
    strategy = BuildStrategy()
    with pytest.raises(UnknownField, match="fuse_all_reduce_ops") as caught:
        strategy.fuse_all_reduce_op = True
    assert str(caught.value) == message
    with pytest.raises(AttributeError, match="Did you mean"):
        _ = strategy.fuse_all_reduce_op
    with pytest.raises(UnknownField, match="Did you mean"):
        BuildStrategy(fuse_all_reduce_op=True)


def test_paddles_bool_like_ints() -> None:
    strategy = BuildStrategy()
    strategy.fuse_bn_act_ops = 1
    assert strategy.fuse_bn_act_ops is True


def test_finalizing_freezes_what_chooses_passes() -> None:
    strategy = BuildStrategy()
    strategy._finalize_strategy_and_create_passes()
    with pytest.raises(EnforceNotMet, match="finalized"):
        strategy.fuse_bn_act_ops = True
    strategy.enable_inplace = False


def test_text_and_json() -> None:
    strategy = BuildStrategy(fuse_bn_act_ops=True)
    strategy.reduce_strategy = BuildStrategy.ReduceStrategy.Reduce
    assert "fuse_bn_act_ops=True" in str(strategy) and "memory_optimize" not in str(strategy)
    assert BuildStrategy.from_json(strategy.to_json()) == strategy


@pytest.mark.parametrize("form", ["json", "yaml"])
def test_every_strategy_goes_round(form: str) -> None:
    build = BuildStrategy(sync_batch_norm=True, mkldnn_enabled_op_types={"conv2d", "relu"})
    build.reduce_strategy = BuildStrategy.ReduceStrategy.Reduce
    build.gradient_scale_strategy = BuildStrategy.GradientScaleStrategy.SampleWeighted
    where = ClusterConfig(nodes=["a"], node_labels={"rack": "b"}, resources_per_replica={"disk": 1})
    others = (ExecutionStrategy(num_threads=3), ClusterConfig(address="a:1"), where)
    for strategy in (build, BuildStrategy(), *others):
        kind = type(strategy)
        text = getattr(strategy, f"to_{form}")()
        assert getattr(kind, f"from_{form}")(text) == strategy
    assert "Reduce" in build.to_yaml() and "SampleWeighted" in build.to_json()
    changed = str(build)
    assert "reduce_strategy='Reduce'" in changed and "num_trainers" not in changed


def test_a_part_is_read_and_what_is_wrong_is_named() -> None:
    read = BuildStrategy.from_yaml("reduce_strategy: Reduce\nfuse_broadcast_ops: false\n")
    assert read.changes() == {
        "reduce_strategy": BuildStrategy.ReduceStrategy.Reduce,
        "fuse_broadcast_ops": False,
    }
    with pytest.raises(StrategyError, match=r"expected one of AllReduce, Reduce, .*got 'Ring'"):
        BuildStrategy.from_yaml("reduce_strategy: Ring")
    with pytest.raises(UnknownField, match="Did you mean 'sync_batch_norm'"):
        BuildStrategy.from_json('{"sync_batch_norms": true}')
    for text in ("{", "- 1", "3"):
        with pytest.raises(StrategyError, match="BuildStrategy"):
            BuildStrategy.from_yaml(text)
    with pytest.raises(StrategyError, match="no JSON"):
        BuildStrategy.from_json("{")


def test_what_is_not_built_is_known() -> None:
    strategy = BuildStrategy(cache_runtime_context=True, async_mode=True, fuse_all_reduce_ops=False)
    strategy.gradient_scale_strategy = BuildStrategy.GradientScaleStrategy.One
    ignored, refused = unbuilt(strategy)
    assert ignored == ["cache_runtime_context"]
    assert refused == ["async_mode=True"]


@pytest.mark.parametrize(
    ("field", "value", "says"),
    [
        ("launcher", "thread", "'ray' or 'threads'"),
        ("bucket_bytes", 0, "greater than or equal to 1"),
        ("start_deadline_s", -1, "greater than 0"),
        ("num_cpus_per_replica", -1, "greater than or equal to 0"),
        ("num_cpus_per_replica", float("nan"), "finite"),
        ("replicas_per_node", 0, "greater than or equal to 1"),
        ("replicas_per_node", 1.5, "integer"),
        ("packing", "PACK", "'fill' or 'spread'"),
        ("nodes", [], "at least 1"),
        ("nodes", "10.0.0.1", "list"),
        ("nodes", ["a", "b", "a"], "a is listed twice"),
        ("node_labels", {}, "at least 1"),
        ("node_labels", {"rack": 1}, "string"),
        ("resources_per_replica", {"disk": -1}, "'disk' must be a number from 0.0001 up"),
        ("resources_per_replica", {"disk": float("inf")}, "'disk' must be"),
        ("resources_per_replica", {"disk": "much"}, "number"),
        ("resources_per_replica", {"CPU": 1}, "use num_cpus_per_replica"),
        ("resources_per_replica", {"GPU": 1}, "a place on a GPU reserves one"),
    ],
)
def test_a_wrong_cluster_config_is_refused(field: str, value: Any, says: str) -> None:
    config = ClusterConfig()
    with pytest.raises(StrategyError, match=re.escape(says)):
        ClusterConfig(**{field: value})
    with pytest.raises(StrategyError, match=rf"^ClusterConfig\.{field}: "):
        setattr(config, field, value)
    assert config == ClusterConfig()


def test_cluster_config_takes_whole_numbers_for_seconds_and_amounts() -> None:
    assert ClusterConfig(step_deadline_s=5).step_deadline_s == 5.0
    assert ClusterConfig(resources_per_replica={"disk": 1}).resources_per_replica == {"disk": 1.0}
    assert ClusterConfig().resources_per_replica is not ClusterConfig().resources_per_replica


@pytest.mark.parametrize("kind", [BuildStrategy, ExecutionStrategy, ClusterConfig])
def test_help_describes_every_field_with_an_effect(kind: type[Strategy]) -> None:
    fields = {n for n, f in kind.model_fields.items() if f.json_schema_extra == {"built": "all"}}
    assert not fields - set(re.findall(r"\w+", str(kind.__doc__)))


@pytest.mark.parametrize("kind", [BuildStrategy, ExecutionStrategy, ClusterConfig])
def test_completion_offers_fields_and_no_names_of_pydantic(kind: type[Strategy]) -> None:
    names = {name for name in dir(kind()) if not name.startswith("_")}
    assert names >= {*kind.model_fields, "to_json", "from_yaml", "changes"}
    assert not [name for name in names if name.startswith("model_")] and "json" not in names
