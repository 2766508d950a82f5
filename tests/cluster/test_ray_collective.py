"""Groups inside Ray actors: through ``ray.util.collective``, and over Ray's own backends."""

from __future__ import annotations

import importlib.util
import uuid
from collections.abc import Callable, Iterator
from typing import Any

import numpy as np
import pytest
import ray
from ray.util import collective

from rowlock.cluster.collective.backends import form_group
from rowlock.cluster.collective.ray_groups import RayGroup
from rowlock.cluster.primitives import ray_private
from rowlock.executor.plan.group import When
from rowlock.executor.replica.agreement import pack_step
from rowlock.strategies.errors import CollectiveError, Unsupported

Call = Callable[..., list[Any]]
torch = pytest.mark.skipif(importlib.util.find_spec("torch") is None, reason="needs torch")


class Member:
    """An actor with a group; its methods are what the tests let all members do."""

    def join(self, name: str, rank: int, size: int, backend: str) -> int:
        self.name, self.rank = name, rank
        self.group: Any = form_group(name, rank, size, backend)
        return int(self.group.local_size)

    def without_private_parts(self) -> None:
        """Let this process be one whose Ray lacks all that is private in it."""
        ray_private.part = lambda module, name: None

    def everything(self) -> dict[str, Any]:
        group, rank = self.group, self.rank
        group.begin(1)
        shared = group.buffer(16).view("float32")
        shared[...] = rank + 1
        group.all_reduce(shared, "mean", when=When(60, "a"))
        parts, spread = (np.full(4, rank + 1.0) for _ in range(2))
        group.reduce_parts(parts, [1, 4], [1, 0], when=When(60, "b"))
        group.broadcast_parts(spread, [1, 4], [1, 0], when=When(60, "c"))
        total = np.full(2, rank + 1)
        group.reduce(total, 1)
        gathered = group.all_gather(np.array([rank, 7]))
        scattered = group.reduce_scatter([np.array([1.0 + rank]), np.array([5.0, 6.0])])
        exchanged = group.exchange(np.array([rank, 7]))
        group.vote(When(60))
        group.barrier(When(60))
        return {
            "mean": shared.tolist(),
            "parts": parts.tolist(),
            "spread": spread.tolist(),
            "total": total.tolist(),
            "gathered": [array.tolist() for array in gathered],
            "exchanged": exchanged.tolist(),
            "scattered": scattered.tolist(),
        }

    def through_ray(self) -> list[float]:
        array = np.full(3, self.rank + 1.0)
        collective.allreduce(array, self.name)
        collective.barrier(self.name)
        return array.tolist()

    def summed(self) -> float:
        array = np.full(100_000, self.rank + 1.0)
        collective.allreduce(array, self.name)
        return float(array[-1])

    def send(self) -> str:
        try:
            collective.send(np.zeros(3), 1 - self.rank, self.name)
        except Unsupported as error:
            return str(error)
        return "moved"

    def leave(self) -> None:
        self.group.abort("it ends")
        self.group.reset(1)
        self.group.close()


@pytest.fixture
def members(ray_cluster: None) -> Iterator[Call]:
    actors = [ray.remote(Member).options(num_cpus=0.5).remote() for _ in range(2)]
    name = f"test-{uuid.uuid4().hex}"

    def call(method: str, *words: Any) -> list[Any]:
        args_by_rank = [(name, rank, 2, *words) if method == "join" else words for rank in range(2)]
        calls = zip(actors, args_by_rank, strict=True)
        answers = [getattr(actor, method).remote(*words) for actor, words in calls]
        results: list[Any] = ray.get(answers, timeout=240)
        return results

    yield call
    for actor in actors:
        ray.kill(actor)


@pytest.mark.parametrize("backend", ["rowlock", pytest.param("gloo", marks=torch)])
def test_every_backend_computes_the_same(members: Call, backend: str) -> None:
    assert members("join", backend) == [2, 2]
    first, second = members("everything")
    for results in (first, second):
        assert results["mean"] == [1.5] * 4
        assert results["spread"] == [2.0, 1.0, 1.0, 1.0]
        assert results["gathered"] == results["exchanged"] == [[0, 7], [1, 7]]
    assert first["parts"] == [1.0, 3.0, 3.0, 3.0] and second["parts"] == [3.0, 2.0, 2.0, 2.0]
    assert first["total"] == [1, 1] and second["total"] == [3, 3]
    assert first["scattered"] == [3.0] and second["scattered"] == [10.0, 12.0]
    assert members("through_ray") == [[3.0] * 3] * 2
    members("leave")


def test_groups_form_without_what_is_private_in_ray(members: Call) -> None:
    members("without_private_parts")
    assert members("join", "rowlock") == [2, 2]
    assert [results["mean"] for results in members("everything")] == [[1.5] * 4] * 2
    members("leave")
    ray.kill(ray.get_actor("rowlock table", "rowlock"))


def test_messages_between_two_ranks_are_refused(members: Call) -> None:
    members("join", "rowlock")
    assert all("no send" in text for text in members("send"))
    members("leave")


@pytest.mark.parametrize("backend, package", [("gloo", "torch"), ("nccl", "cupy")])
def test_what_is_missing_is_said(backend: str, package: str) -> None:
    if importlib.util.find_spec(package) is not None:
        pytest.skip(f"{package} is here")
    with pytest.raises(CollectiveError, match=rf"pip install.* {package}"):
        form_group("any", 0, 2, backend)


def test_an_unknown_backend_is_refused() -> None:
    with pytest.raises(CollectiveError, match=r"'mpi' is not one of .*, rowlock"):
        form_group("any", 0, 2, "mpi")


def test_rays_groups_notice_at_a_barrier_who_came_for_something_else() -> None:
    group: Any = object.__new__(RayGroup)  # its backend is not asked
    group.name, group.rank, group._arrays = "g", 0, np
    others: list[np.ndarray] = []
    group.all_gather = lambda mine, tag: [mine, *(others or [mine])]
    group.begin(pack_step(3, 3))
    group.barrier(When(tag="a"))
    group.vote(When(tag="a"))
    others += [np.array([1, 2]), np.array([3, 4])]
    what = r"ranks \[1, 2\] came for another .* rank 0, which came for barrier \(a\) in step 3 \(3 done\)"
    with pytest.raises(CollectiveError, match=what):
        group.vote(When(tag="a"))
