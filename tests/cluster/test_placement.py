"""Which replica goes where: planned from a list of nodes, so no Ray runs here."""

from __future__ import annotations

import re
from collections.abc import Sequence
from typing import Any

import pytest

from rowlock.cluster.ray import placement
from rowlock.cluster.ray.nodes import Node, assign_nodes
from rowlock.cluster.ray.placement import choose, needs, plan
from rowlock.strategies.cluster import ClusterConfig
from rowlock.strategies.errors import CollectiveError, PlacementError

GIB = float(1 << 30)


def node(name: str, cpus: float, labels: dict[str, str] | None = None, **others: float) -> Node:
    resources = {"CPU": cpus, "memory": 8 * GIB, f"node:10.0.0.{name}": 1.0, **others}
    return Node(f"id{name}", f"10.0.0.{name}", resources, labels or {})


ONE, TWO, FOUR = node("1", 1), node("2", 2, {"rack": "b"}), node("3", 4, {"rack": "b"}, disk=3)
ALL = [ONE, TWO, FOUR]


def placed(size: int, known_nodes: Sequence[Node] = ALL, **settings: Any) -> str:
    """The last digits of the addresses, a replica each."""
    chosen_nodes = plan(size, known_nodes, ClusterConfig(**settings))
    return "".join(n.address[-1] for n in chosen_nodes)


@pytest.mark.parametrize(
    ("size", "settings", "where"),
    [
        (7, {}, "1223333"),
        (9, {}, "122333312"),  # full: one more each
        (7, {"packing": "spread"}, "1232333"),
        (9, {"packing": "spread"}, "123233312"),
        (3, {"num_cpus_per_replica": 2}, "233"),  # the first node has not two CPUs
        (7, {"num_cpus_per_replica": 1, "packing": "spread"}, "1232333"),
        (6, {"replicas_per_node": 2}, "112233"),
        (5, {"replicas_per_node": 2}, "11223"),
        (5, {"replicas_per_node": 2, "packing": "spread"}, "12312"),
        (2, {"replicas_per_node": 1}, "12"),
        (4, {"nodes": ["10.0.0.3", "id1"]}, "3333"),
        (6, {"nodes": ["10.0.0.3", "id1"]}, "333313"),
        (4, {"nodes": ["10.0.0.3", "id1"], "packing": "spread"}, "3133"),
        (3, {"node_labels": {"rack": "b"}}, "223"),
        (2, {"node_labels": {"rack": "b"}, "nodes": ["10.0.0.1", "10.0.0.3"]}, "33"),
        (3, {"resources_per_replica": {"disk": 1.0}}, "333"),
        (3, {"resources_per_replica": {"memory": 4 * GIB}}, "122"),
        (5, {"resources_per_replica": {"memory": 4 * GIB}}, "12233"),
        (6, {"resources_per_replica": {"memory": 4 * GIB}}, "122331"),  # one more where it fits
    ],
)
def test_where_replicas_go(size: int, settings: dict[str, Any], where: str) -> None:
    assert placed(size, **settings) == where


@pytest.mark.parametrize("packing", ["fill", "spread"])
@pytest.mark.parametrize("cpus", [0.0, 0.5, 1.0])
def test_no_node_holds_more_than_it_has(packing: str, cpus: float) -> None:
    for size in range(1, 8):
        where = plan(size, ALL, ClusterConfig(packing=packing, num_cpus_per_replica=cpus))
        assert len(where) == size
        for one in ALL:
            assert where.count(one) <= one.cpus / (cpus or 1)


def test_fractions_are_counted_whole() -> None:
    assert node("1", 3, disk=0.3).room({"disk": 0.1}) == 3
    assert node("1", 0.5).room({"CPU": 0.5}) == 1
    assert ONE.room({}) == float("inf") and ONE.room({"disk": 1}) == 0


def test_an_address_stands_for_all_its_nodes() -> None:
    nodes = [
        Node("a", "10.0.0.1", {"CPU": 1}),
        Node("b", "10.0.0.1", {"CPU": 1}),
        Node("c", "10.0.0.2", {"CPU": 1}),
    ]
    assert [n.id for n in choose(nodes, ClusterConfig(nodes=["10.0.0.1"]))] == ["a", "b"]
    assert [n.id for n in choose(nodes, ClusterConfig(nodes=["b", "10.0.0.1"]))] == ["b", "a"]


def test_nodes_without_cpus_are_used_only_when_named_or_alone() -> None:
    head = node("9", 0)
    assert placed(3, [head, ONE]) == "111"
    assert placed(2, [head]) == "99"
    assert placed(2, [head, ONE], nodes=["10.0.0.9"]) == "99"


def test_homes_may_be_fewer() -> None:
    assert len(assign_nodes(9, ALL, {"CPU": 2})) == 3
    assert assign_nodes(2, [], {}) == []


def test_what_a_replica_needs() -> None:
    assert needs(ClusterConfig()) == {}
    config = ClusterConfig(num_cpus_per_replica=2, resources_per_replica={"disk": 1})
    assert needs(config) == {"CPU": 2, "disk": 1}


@pytest.mark.parametrize(
    ("size", "settings", "says"),
    [
        (
            2,
            {"nodes": ["10.0.0.3", "10.0.0.33"]},
            r"nodes asks for '10\.0\.0\.33'; the cluster has 10\.0\.0\.1 \(id id1\), .*by address or id\. "
            r"Did you mean '10\.0\.0\.3'",
        ),
        (
            2,
            {"node_labels": {"rack": "c"}},
            r"node_labels asks for nodes with rack=c; there is none: 10\.0\.0\.1 has none of its own, "
            r"10\.0\.0\.2 has rack=b.*ray start --labels",
        ),
        (
            2,
            {"node_labels": {"rack": "b"}, "nodes": ["10.0.0.1"]},
            r"rack=b; there is none: 10\.0\.0\.1",
        ),
        (
            1,
            {"resources_per_replica": {"disc": 1}},
            r"asks for 1 'disc'; no node .* They offer CPU, disk, memory\. Did you mean 'disk'.*leave it out",
        ),
        (
            1,
            {"resources_per_replica": {"disk": 1}, "nodes": ["10.0.0.1"]},
            r"no node that may be used offers it",
        ),
        (
            2,
            {"num_cpus_per_replica": 64},
            r"2 replicas with 64 CPUs each .*need 128 CPUs; the cluster has 1 CPU \(10\.0\.0\.1\), 2 CPUs "
            r".*: room for 0\. Ask for fewer",
        ),
        (8, {"num_cpus_per_replica": 1}, r"8 replicas .* need 8 CPUs; .*: room for 7"),
        (
            5,
            {"num_cpus_per_replica": 1, "nodes": ["10.0.0.3"]},
            r"what ClusterConfig\.nodes and node_labels leave has 4 CPUs \(10\.0\.0\.3\): room for 4",
        ),
        (4, {"resources_per_replica": {"disk": 1}}, r"need 4 disk; .*: room for 3"),
        (
            1,
            {"resources_per_replica": {"memory": 9 * GIB}},
            r"need 9663676416 bytes of memory; .*: room for 0",
        ),
        (
            400,
            {},
            r"400 places put 132 replicas on 10\.0\.0\.1, .*1 CPU and memory for 81\. Ask for fewer",
        ),
        (
            7,
            {"replicas_per_node": 2},
            r"7 places, 2 on each node .*need 4 nodes; 3 can hold .*: 10\.0\.0\.1, .*at most 6 places",
        ),
        (
            2,
            {"replicas_per_node": 2, "num_cpus_per_replica": 1},
            r"replicas_per_node=2 puts 2 replicas with 1 CPU each .* on 10\.0\.0\.1, which offers 1 CPU .*: "
            r"room for 1\. Lower it",
        ),
    ],
)
def test_what_cannot_be_is_refused_in_a_sentence(
    size: int, settings: dict[str, Any], says: str
) -> None:
    with pytest.raises(PlacementError) as raised:
        plan(size, ALL, ClusterConfig(**settings))
    assert re.search(says, str(raised.value)), str(raised.value)
    assert isinstance(raised.value, CollectiveError)


def test_where_no_node_is_left_that_is_said() -> None:
    with pytest.raises(PlacementError, match=r"no node is left for replicas: .* Start another"):
        plan(2, [], ClusterConfig())


def test_a_message_names_some_nodes_and_counts_the_rest() -> None:
    many = [Node(f"id{i}", f"10.1.0.{i}", {"CPU": 1}) for i in range(40)]
    with pytest.raises(PlacementError, match=r"10\.1\.0\.11 .*and 28 more"):
        plan(2, many, ClusterConfig(nodes=["nowhere"]))


class FakeRay:
    """Stands for Ray: the nodes it has, what is free on each, and how a reservation turns out."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch, states: list[str]) -> None:
        self.living, self.states = [list(ALL)], states
        self.free = {one.id: dict(one.resources) for one in ALL}
        self.requests: list[str] = []
        self.removed = 0
        monkeypatch.setattr(placement, "nodes", self.nodes)
        monkeypatch.setattr(placement, "_hold", self.hold)
        monkeypatch.setattr(placement, "_settled", lambda group, deadline: self.states.pop(0))
        monkeypatch.setattr(placement, "remove_placement_group", self.remove)
        monkeypatch.setattr(placement, "free_per_node", lambda: self.free)
        monkeypatch.setattr(placement.ray, "available_resources", lambda: {"CPU": 1.0})

    def nodes(self) -> list[Node]:
        return self.living.pop(0) if len(self.living) > 1 else self.living[0]

    def hold(self, where: Sequence[Node], need: dict[str, float]) -> str:
        self.requests.append("".join(one.address[-1] for one in where))
        return self.requests[-1]

    def remove(self, group: str) -> None:
        self.removed += 1


def test_a_node_found_dead_is_planned_without(monkeypatch: pytest.MonkeyPatch) -> None:
    fake = FakeRay(monkeypatch, ["INFEASIBLE", "CREATED"])
    fake.living = [ALL, ALL[1:]]
    assert placement.reserve(3, ClusterConfig()) == "223"
    assert fake.requests == ["122", "223"] and fake.removed == 1


def test_nodes_that_others_hold_are_passed_over(monkeypatch: pytest.MonkeyPatch) -> None:
    fake = FakeRay(monkeypatch, ["NO_RESOURCES", "CREATED"])
    fake.free["id1"] = {"CPU": 0.0}
    fake.free["id2"] = {"CPU": 1.0}
    assert placement.reserve(3, ClusterConfig(num_cpus_per_replica=1)) == "233"
    assert fake.requests == ["122", "233"] and fake.removed == 1


def test_replicas_that_need_nothing_stay_where_they_were_planned(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    fake = FakeRay(monkeypatch, ["NO_RESOURCES", "CREATED"])
    fake.free["id2"] = {"CPU": 0.0}
    assert placement.reserve(3, ClusterConfig()) == "122"


def test_what_is_free_nowhere_is_waited_for(monkeypatch: pytest.MonkeyPatch) -> None:
    fake = FakeRay(monkeypatch, ["NO_RESOURCES", "NO_RESOURCES", "CREATED"])
    fake.free = {}
    assert placement.reserve(2, ClusterConfig(num_cpus_per_replica=1)) == "12"
    assert fake.requests == ["12"] * 3 and fake.removed == 2


@pytest.mark.parametrize("state", ["INFEASIBLE", "NO_RESOURCES"])
def test_waiting_ends(monkeypatch: pytest.MonkeyPatch, state: str) -> None:
    fake = FakeRay(monkeypatch, [state])
    config = ClusterConfig(num_cpus_per_replica=1, start_deadline_s=1e-9)
    with pytest.raises(PlacementError, match=r"1 of its 7 CPUs are free.*start_deadline_s"):
        placement.reserve(2, config)
    assert fake.removed == 1


def test_a_reservation_that_is_interrupted_is_given_back(monkeypatch: pytest.MonkeyPatch) -> None:
    fake = FakeRay(monkeypatch, [])
    with pytest.raises(IndexError):
        placement.reserve(2, ClusterConfig())
    assert fake.removed == 1
