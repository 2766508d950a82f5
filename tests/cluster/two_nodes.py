"""Run by test_two_nodes.py in a process of its own: a cluster of two Ray nodes on this machine."""

from __future__ import annotations

import ray
from ray.cluster_utils import Cluster

import rowlock
import rowlock.fluid as fluid
from rowlock.cluster.nodes import homes, nodes
from tests.contract.nets import OPTIMIZERS, Net, assert_close, feed
from tests.contract.test_sync_batch_norm import Normed

SETTINGS = {"object_store_memory": 80_000_000, "include_dashboard": False}


def main() -> None:
    cluster = Cluster(initialize_head=True, head_node_args={"num_cpus": 1, **SETTINGS})
    cluster.add_node(num_cpus=2, num_gpus=3, object_store_memory=80_000_000)
    ray.init(address=cluster.address, logging_level="ERROR", log_to_driver=False)
    try:
        check_numbering()
        with rowlock.cluster(launcher="ray"):
            check_training()
            normed, alone = Normed("rows"), Normed("rows")
            normed.train(2, sync=True)
            alone.train(0, sync=False)
            assert_close(normed.values(), alone.values(), 1e-5)
    finally:
        ray.shutdown()
        cluster.shutdown()


def check_numbering() -> None:
    found = nodes()
    assert sorted(n.cpus for n in found) == [1, 2] and found == nodes()
    filled = [n.id for n in found for _ in range(n.cpus)]
    assert [n.id for n in homes(3, found)] == filled
    assert [n.id for n in homes(5, found)] == filled + [n.id for n in found]
    assert [place.device_id for place in fluid.cuda_places()] == [0, 1, 2]


def check_training() -> None:
    net, alone = Net(OPTIMIZERS["adam"]), Net(OPTIMIZERS["adam"])
    program = net.compiled(3)
    for step in range(3):
        net.run(program, feed(6, step), [net.loss])
        alone.run(alone.main, feed(6, step), [])
    assert_close(net.parameters(), alone.parameters(), 1e-5)
    where = [place["node"] for place in program._parallel.gang.delivery.where]
    assert where == [n.id for n in homes(3, nodes())] and len(set(where)) == 2


if __name__ == "__main__":
    main()
    print("two nodes: done")
