"""A canary: which private part of Ray is gone, or another one; and what is done without it."""

from __future__ import annotations

import importlib
import inspect
import os
from types import SimpleNamespace

import pytest
import ray

from rowlock.cluster.primitives import ray_private
from rowlock.cluster.ray import placement
from rowlock.strategies.cluster import ClusterConfig


@pytest.mark.parametrize(
    ("place", "parameters"),
    [
        (ray_private.FREE, []),
        (ray_private.PUT, ["key", "value", "overwrite", "namespace"]),
        (ray_private.GET, ["key", "namespace"]),
        (ray_private.DELETE, ["key", "del_by_prefix", "namespace"]),
    ],
)
def test_ray_still_has_the_function(place: tuple[str, str], parameters: list[str]) -> None:
    function = ray_private.part(*place)
    advice = f"Ray {ray.__version__} has no {'.'.join(place)} as before: cluster goes on without"
    assert function is not None and list(inspect.signature(function).parameters) == parameters, (
        advice
    )


def test_rays_node_still_ends_its_processes_by_these_methods() -> None:
    from ray._private.node import Node

    assert hasattr(importlib.import_module(ray_private.NODE[0]), ray_private.NODE[1])
    missing = [name for name in ray_private.NODE_ENDINGS if not hasattr(Node, name)]
    assert not missing, (
        f"Ray {ray.__version__}: a forked child may end its parent's Ray ({missing})"
    )


def test_a_lean_node_leaves_out_services_while_it_is_started(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    from ray._private.node import Node

    missing = [name for name in ray_private.NODE_SERVICES if not hasattr(Node, name)]
    assert not missing, (
        f"Ray {ray.__version__}: a Ray that starts here has {missing} by other names"
    )
    before = dict(vars(Node))
    with pytest.raises(KeyError), ray_private.lean_node():
        changed = {name for name in before if vars(Node)[name] is not before[name]}
        assert changed == set(ray_private.NODE_SERVICES)
        raise KeyError
    assert dict(vars(Node)) == before
    monkeypatch.setattr(ray_private, "part", lambda module, name: None)
    with ray_private.lean_node():
        assert dict(vars(Node)) == before


def test_a_child_ends_nothing_of_its_parents_node(monkeypatch: pytest.MonkeyPatch) -> None:
    ended: list[str] = []
    node = SimpleNamespace(**{n: lambda: ended.append("end") for n in ray_private.NODE_ENDINGS})
    monkeypatch.setattr(ray_private, "part", lambda module, name: node)
    ray_private.leave_parents_node()
    for name in ray_private.NODE_ENDINGS:
        getattr(node, name)()
    assert not ended


def test_without_private_parts_what_is_not_free_is_waited_for(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(ray_private, "part", lambda module, name: None)
    assert ray_private.free_per_node() is None
    assert placement._plan_free(1, [], ClusterConfig()) is None
    ray_private.leave_parents_node()


def test_ray_can_be_told_of_a_token_after_it_was_imported() -> None:
    config = ray_private.part(*ray_private.CONFIG)
    assert hasattr(config, "initialize"), (
        f"Ray {ray.__version__}: a Ray that scripts share is started without a token"
    )
    tokens = ray_private.part(*ray_private.TOKENS)
    assert hasattr(tokens, "instance") and hasattr(tokens.instance(), "reset_cache"), (
        f"Ray {ray.__version__}: a Ray that scripts share is started without a token"
    )


def test_a_token_that_the_environment_names_stays_in_force() -> None:
    for name in (ray_private.MODE, ray_private.TOKEN, ray_private.TOKEN_PATH):
        environment = {name: "as it was"}
        ray_private.authenticate(environment, "/nowhere")
        assert environment == {name: "as it was"}
    # Ray leaves the second in a process that started one, and an earlier call the third.
    shared = {ray_private.MODE: "token", ray_private.TOKEN_PATH: "/nowhere"}
    for environment in ({}, {ray_private.MODE: "token"}, dict(shared)):
        ray_private.authenticate(environment, "/nowhere")
        assert environment == shared


def test_ray_forgets_the_token_of_the_ray_that_a_process_was_in(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    calls: list[str] = []
    ray_part = SimpleNamespace(
        initialize=lambda settings: calls.append("read the environment"),
        instance=lambda: SimpleNamespace(reset_cache=lambda: calls.append("forget the token")),
    )
    with monkeypatch.context() as patch:
        patch.setattr(ray_private, "part", lambda module, name: ray_part)
        patch.setattr(os, "environ", {ray_private.MODE: "token"})
        ray_private.authenticate(os.environ, "/nowhere")
        assert os.environ[ray_private.TOKEN_PATH] == "/nowhere"
    assert calls == ["read the environment", "forget the token"]
