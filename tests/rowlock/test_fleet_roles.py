"""Roles: what environments and arguments say, and what is wrong with them."""

from __future__ import annotations

from typing import Any

import pytest

from rowlock.fluid.incubate.fleet.base import role_maker
from rowlock.fluid.incubate.fleet.base.role_maker import Role
from rowlock.fluid.incubate.fleet.collective import Collective
from rowlock.fluid.incubate.fleet.parameter_server.distribute_transpiler import (
    DistributedTranspiler,
)
from rowlock.strategies.errors import EnforceNotMet, InvalidState, InvalidType, Unsupported

SERVERS = "10.0.0.1:6170,10.0.0.2:6170"
TRAINER = {
    "TRAINING_ROLE": "TRAINER",
    "PADDLE_PSERVERS_IP_PORT_LIST": SERVERS,
    "PADDLE_TRAINERS_NUM": "3",
    "PADDLE_TRAINER_ID": "2",
}
SERVER = {**TRAINER, "TRAINING_ROLE": "PSERVER", "POD_IP": "10.0.0.2", "PADDLE_PORT": "6170"}
COLLECTIVE = {
    "PADDLE_TRAINER_ENDPOINTS": "10.0.0.1:6070,10.0.0.1:6071",
    "PADDLE_TRAINER_ID": "1",
    "PADDLE_CURRENT_ENDPOINT": "10.0.0.1:6071",
}
READ = {*TRAINER, *SERVER, *COLLECTIVE, "PADDLE_TRAINING_ROLE", "PADDLE_PSERVER_ID"}


@pytest.fixture(autouse=True)
def no_environment(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in READ:
        monkeypatch.delenv(name, raising=False)


def fleet_in(
    monkeypatch: pytest.MonkeyPatch, environment: dict[str, str], maker: Any, kind: Any = None
) -> Any:
    for name, value in environment.items():
        monkeypatch.setenv(name, value)
    fleet = (DistributedTranspiler if kind is None else kind)()
    fleet.init(maker)
    return fleet


def test_a_trainer_reads_its_environment(monkeypatch: pytest.MonkeyPatch) -> None:
    fleet = fleet_in(monkeypatch, TRAINER, role_maker.PaddleCloudRoleMaker())
    assert fleet.is_worker() and not fleet.is_server() and not fleet.is_first_worker()
    assert (fleet.worker_index(), fleet.worker_num(), fleet.server_num()) == (2, 3, 2)
    assert fleet.server_endpoints() == SERVERS.split(",")
    assert fleet.server_endpoints(to_string=True) == SERVERS
    assert fleet.worker_endpoints() == []
    assert repr(fleet) == "<fleet: <PaddleCloudRoleMaker: TRAINER 2, of 3 workers and 2 servers>>"


def test_a_server_reads_its_environment(monkeypatch: pytest.MonkeyPatch) -> None:
    fleet = fleet_in(monkeypatch, SERVER, role_maker.PaddleCloudRoleMaker())
    assert fleet.is_server() and not fleet.is_worker() and not fleet.is_first_worker()
    assert fleet.server_index() == 1


def test_a_collective_trainer_reads_its_environment(monkeypatch: pytest.MonkeyPatch) -> None:
    maker = role_maker.PaddleCloudRoleMaker(is_collective=True)
    fleet = fleet_in(monkeypatch, COLLECTIVE, maker, Collective)
    assert fleet.is_worker() and (fleet.worker_index(), fleet.worker_num()) == (1, 2)
    assert fleet.worker_endpoints(to_string=True) == COLLECTIVE["PADDLE_TRAINER_ENDPOINTS"]


def test_general_roles(monkeypatch: pytest.MonkeyPatch) -> None:
    both = {**TRAINER, "PADDLE_TRAINER_ENDPOINTS": COLLECTIVE["PADDLE_TRAINER_ENDPOINTS"]}
    maker = role_maker.GeneralRoleMaker(path="/tmp", http_ip_port="10.0.0.1:80")
    fleet = fleet_in(monkeypatch, {**both, "PADDLE_TRAINER_ID": "1"}, maker)
    assert maker.get_local_endpoint() == "10.0.0.1:6071" and fleet.worker_num() == 2
    server = {**both, "TRAINING_ROLE": "PSERVER", "PADDLE_PSERVER_ID": "1"}
    fleet = fleet_in(monkeypatch, server, role_maker.GeneralRoleMaker())
    assert fleet.server_index() == 1
    with pytest.raises(InvalidType, match="no argument 'hdfs'"):
        role_maker.GeneralRoleMaker(hdfs="x")


def without(environment: dict[str, str], name: str) -> dict[str, str]:
    return {key: value for key, value in environment.items() if key != name}


@pytest.mark.parametrize(
    ("environment", "collective", "builtin", "text"),
    [
        (
            without(TRAINER, "TRAINING_ROLE"),
            False,
            KeyError,
            "has no TRAINING_ROLE, which tells the part",
        ),
        (without(TRAINER, "PADDLE_TRAINER_ID"), False, KeyError, "has no PADDLE_TRAINER_ID"),
        (without(SERVER, "POD_IP"), False, KeyError, "has no POD_IP"),
        ({**TRAINER, "TRAINING_ROLE": "WORKER"}, False, ValueError, "must be TRAINER or PSERVER"),
        ({**TRAINER, "PADDLE_TRAINER_ID": "3"}, False, ValueError, "must be from 0 to 2"),
        ({**TRAINER, "PADDLE_TRAINER_ID": "one"}, False, ValueError, "must be a whole number"),
        ({**TRAINER, "PADDLE_TRAINERS_NUM": "0"}, False, ValueError, "must be at least 1"),
        (
            {**TRAINER, "PADDLE_PSERVERS_IP_PORT_LIST": "10.0.0.1"},
            False,
            ValueError,
            "ip:port .* and has '10.0.0.1'",
        ),
        ({**TRAINER, "PADDLE_PSERVERS_IP_PORT_LIST": "a:1,a:1"}, False, ValueError, "'a:1' twice"),
        (
            {**SERVER, "PADDLE_PORT": "6171"},
            False,
            ValueError,
            "at '10.0.0.2:6171' .* does not have",
        ),
        ({**TRAINER, "PADDLE_PSERVERS_IP_PORT_LIST": ""}, False, ValueError, "is empty: name at"),
        (
            {**TRAINER, "PADDLE_PSERVERS_IP_PORT_LIST": "a:1;b:1"},
            False,
            ValueError,
            "commas between",
        ),
        ({**SERVER, "POD_IP": "localhost"}, False, ValueError, "letter by letter"),
        ({}, True, KeyError, "has no PADDLE_TRAINER_ENDPOINTS"),
        (
            {**COLLECTIVE, "PADDLE_TRAINERS_NUM": "3"},
            True,
            ValueError,
            "TRAINERS_NUM is 3, .* lists 2",
        ),
        (without(COLLECTIVE, "PADDLE_TRAINER_ID"), True, ValueError, "0 .* is not set.* Set both"),
        ({**COLLECTIVE, "TRAINING_ROLE": "PSERVER"}, True, AssertionError, "trainers alone"),
        ({**COLLECTIVE, "PADDLE_TRAINER_ID": "2"}, True, ValueError, "must be from 0 to 1"),
        ({**COLLECTIVE, "PADDLE_TRAINING_ROLE": "PSERVER"}, True, AssertionError, "trainers alone"),
        (
            {**COLLECTIVE, "PADDLE_CURRENT_ENDPOINT": "a:1"},
            True,
            ValueError,
            "but trainer 1 .* is at",
        ),
    ],
)
def test_environments_that_cannot_be(
    environment: dict[str, str],
    collective: bool,
    builtin: type[Exception],
    text: str,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    maker = role_maker.PaddleCloudRoleMaker(is_collective=collective)
    with pytest.raises(EnforceNotMet, match=text) as caught:
        fleet_in(monkeypatch, environment, maker)
    assert isinstance(caught.value, builtin) and not str(caught.value).startswith(("'", '"'))


@pytest.mark.parametrize(
    ("arguments", "builtin", "text"),
    [
        ((0, 3, 1, ["a:1"]), TypeError, "role must be"),
        ((0, Role.WORKER, 0, ["a:1"]), ValueError, "worker_num must be above 0"),
        ((0, Role.WORKER, 1, "a:1"), TypeError, "server_endpoints must be a list"),
        ((0, Role.WORKER, 1, [1]), TypeError, "must be endpoints, such as"),
        ((0, Role.WORKER, 1, []), ValueError, "is empty"),
        ((1, Role.WORKER, 1, ["a:1"]), ValueError, "from 0 to 0 for a TRAINER"),
        ((1, Role.SERVER, 5, ["a:1"]), ValueError, "from 0 to 0 for a PSERVER"),
        (("0", Role.WORKER, 1, ["a:1"]), TypeError, "whole number"),
        ((0, Role.WORKER, 1, ["a:70000"]), ValueError, "ports from 1 to 65535, and has"),
    ],
)
def test_arguments_that_cannot_be(
    arguments: tuple[Any, ...], builtin: type[Exception], text: str
) -> None:
    with pytest.raises(EnforceNotMet, match=text) as caught:
        role_maker.UserDefinedRoleMaker(*arguments)
    assert isinstance(caught.value, builtin)


def test_roles_of_the_other_kind_of_fleet() -> None:
    collective = role_maker.UserDefinedCollectiveRoleMaker(0, ["a:1", "b:1"])
    with pytest.raises(EnforceNotMet, match=r"has servers.*names none.*UserDefinedRoleMaker"):
        DistributedTranspiler().init(collective)
    for part in (Role.WORKER, Role.SERVER):
        with pytest.raises(EnforceNotMet, match=r"of a job with servers.*is_collective=True"):
            Collective().init(role_maker.UserDefinedRoleMaker(0, part, 2, ["a:1"]))
    Collective().init(role_maker.UserDefinedRoleMaker(0, Role.WORKER, 1, ["a:1"]))


def test_what_is_refused() -> None:
    with pytest.raises(Unsupported, match="launch_ps"):
        role_maker.MPISymetricRoleMaker()
    from rowlock.fluid.incubate.fleet.parameter_server import pslib

    with pytest.raises(Unsupported, match="distribute_transpiler"):
        _ = pslib.fleet
    fleet = DistributedTranspiler()
    with pytest.raises(InvalidState, match=r"call fleet\.init") as caught:
        fleet.worker_num()
    assert isinstance(caught.value, AttributeError)
    with pytest.raises(AttributeError, match="needs a role maker"):
        fleet.init(None)
    with pytest.raises(TypeError, match="takes a role maker"):
        fleet.init("worker")  # type: ignore[arg-type]


@pytest.mark.parametrize("count", range(8))
def test_files_are_split_in_blocks(count: int) -> None:
    files = [f"part-{i}" for i in range(count)]
    shares = []
    for i in range(3):
        fleet = DistributedTranspiler()
        fleet.init(role_maker.UserDefinedRoleMaker(i, Role.WORKER, 3, ["a:1"]))
        shares.append(fleet.split_files(files))
    assert sum(shares, []) == files  # noqa: RUF017 - short lists
    assert [len(share) for share in shares] == [(count + 2 - i) // 3 for i in range(3)]
    with pytest.raises(TypeError, match="list of paths"):
        fleet.split_files("part-0")
