"""Run by test_two_nodes.py in a process of its own: a cluster of two Ray nodes on this machine."""

from __future__ import annotations

import os
import re
import signal
from typing import Any

import pytest
import ray
from ray.cluster_utils import Cluster

import rowlock
import rowlock.fluid as fluid
from rowlock.cluster.gang import launch_ray
from rowlock.cluster.ray.nodes import assign_nodes, nodes
from rowlock.strategies.cluster import ClusterConfig
from rowlock.strategies.errors import PlacementError
from tests.cluster.test_ray_collective import Member
from tests.contract.nets import OPTIMIZERS, Net, assert_close, feed
from tests.lean_ray import lean_nodes

SETTINGS = {"object_store_memory": 80_000_000, "include_dashboard": False}


def main() -> None:
    cluster = Cluster(initialize_head=True, head_node_args={"num_cpus": 1, **SETTINGS})
    cluster.add_node(
        num_cpus=2,
        num_gpus=3,
        object_store_memory=80_000_000,
        resources={"disk": 2},
        labels={"rack": "b"},
    )
    ray.init(address=cluster.address, logging_level="ERROR", log_to_driver=False)
    try:
        check_numbering()
        check_collectives()
        with rowlock.cluster(launcher="ray"):
            check_training()
            check_placement()
        check_refusal(cluster)
    finally:
        ray.shutdown()
        cluster.shutdown()


def check_numbering() -> None:
    before = nodes()
    assert sorted(n.cpus for n in before) == [1, 2] and before == nodes()
    filled = [n.id for n in before for _ in range(n.cpus)]
    assert [n.id for n in assign_nodes(3, before)] == filled
    assert [n.id for n in assign_nodes(5, before)] == filled + [n.id for n in before]
    assert [place.device_id for place in fluid.cuda_places()] == [0, 1, 2]


def check_collectives() -> None:
    """Through ``ray.util.collective``: a sum over all."""
    members = [ray.remote(Member).options(num_cpus=1).remote() for _ in range(3)]
    here = [m.join.remote("two nodes", rank, 3, "rowlock") for rank, m in enumerate(members)]
    assert sorted(ray.get(here)) == [1, 2, 2]
    assert ray.get([member.summed.remote() for member in members]) == [6.0] * 3
    ray.get([member.leave.remote() for member in members])
    for member in members:
        ray.kill(member)


def check_training() -> None:
    net, alone = Net(OPTIMIZERS["adam"]), Net(OPTIMIZERS["adam"])
    program = net.compiled(3)
    for step in range(3):
        net.run(program, feed(6, step), [net.loss])
        alone.run(alone.main, feed(6, step), [])
    assert_close(net.parameters(), alone.parameters(), 1e-5)
    where = [place["node"] for place in program._parallel.gang.delivery.where]
    assert where == [n.id for n in assign_nodes(3, nodes())] and len(set(where)) == 2


def check_placement() -> None:
    """What ClusterConfig says about nodes and resources is where replicas are, and what Ray reserves."""
    small, large = sorted(nodes(), key=lambda node: node.cpus)
    for size, settings, expected in [
        (2, {"node_labels": {"rack": "b"}}, [large, large]),
        (4, {"nodes": [small.id, large.id], "replicas_per_node": 2}, [small, small, large, large]),
        (2, {"resources_per_replica": {"disk": 1, "memory": 1 << 20}}, [large, large]),
    ]:
        assert homes_of(size, **settings) == [node.id for node in expected], settings
    check_reservation()
    refused = [
        (2, {"nodes": ["10.255.255.1"]}, "asks for '10.255.255.1'; the cluster has"),
        (2, {"node_labels": {"rack": "c"}}, "rack=c; there is none"),
        (3, {"resources_per_replica": {"disk": 1}}, "need 3 disk"),
        (3, {"resources_per_replica": {"disc": 1}}, "Did you mean 'disk'"),
        (5, {"replicas_per_node": 2}, "at most 4 places"),
    ]
    for size, settings, says in refused:
        with pytest.raises(PlacementError, match=re.escape(says)):
            homes_of(size, **settings, start_deadline_s=10_000)


def homes_of(size: int, **settings: Any) -> list[str]:
    """The node of each replica of a gang that starts and ends here."""
    gang = launch_ray(fluid.cpu_places(size), ClusterConfig(**settings))
    try:
        return [place["node"] for place in gang.delivery.where]
    finally:
        gang.close()


def check_reservation() -> None:
    """What one gang reserves, another waits for, and is told so."""
    settings = {"resources_per_replica": {"disk": 1}}
    gang = launch_ray(fluid.cpu_places(2), ClusterConfig(**settings))
    with pytest.raises(PlacementError, match=r"no resources\. 0 of its 2 disk are free"):
        homes_of(1, **settings, start_deadline_s=1)
    gang.close()
    assert len(homes_of(1, **settings)) == 1
    first, second = nodes()
    gang = launch_ray(fluid.cpu_places(first.cpus), ClusterConfig(num_cpus_per_replica=1))
    assert {place["node"] for place in gang.delivery.where} == {first.id}
    assert homes_of(1, num_cpus_per_replica=1) == [second.id]  # the first is taken
    gang.close()


def check_refusal(cluster: Cluster) -> None:
    """A spare whose processor has fewer instructions takes no place; a node like the others gives another."""
    large = max(nodes(), key=lambda node: node.cpus)
    cluster.add_node(num_cpus=1, env_vars={"ONEDNN_MAX_CPU_ISA": "SSE41"}, labels={"rack": "old"})
    (old,) = (node for node in nodes() if node.labels.get("rack") == "old")
    config = {"nodes": [large.id, old.id], "spares": 1}
    with rowlock.cluster(launcher="ray", **config):
        net, alone = Net(OPTIMIZERS["adam"]), Net(OPTIMIZERS["adam"])
        program = net.compiled(2)
        for step in range(3):
            if step == 1:
                delivery = program._parallel.gang.delivery
                assert delivery._pool.spares[0].where["node"] == old.id
                os.kill(delivery.where[1]["pid"], signal.SIGKILL)
            net.run(program, feed(4, step), [net.loss])
            alone.run(alone.main, feed(4, step), [])
        assert delivery._pool.unfit.keys() == {old.id}
        assert "onednn is " in delivery._pool.unfit[old.id]
        assert [place["node"] for place in delivery.where] == [large.id] * 2
        assert_close(net.parameters(), alone.parameters(), 1e-5)


if __name__ == "__main__":
    with lean_nodes():
        main()
    print("two nodes: done")
