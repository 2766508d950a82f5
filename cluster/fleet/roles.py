"""Role makers: which part this process plays in a job, as its environment or its arguments say."""

from __future__ import annotations

import os
import re
from collections.abc import Iterable, Sequence
from typing import Any

from ...strategies.endpoints import checked_endpoints
from ...strategies.errors import (
    InvalidArgument,
    InvalidType,
    InvalidValue,
    MissingVariable,
    Unsupported,
)
from .worker_group import Bytes, WorkerGroup


class Role:
    """The parts: a worker trains, a server keeps parameters."""

    WORKER = 1
    SERVER = 2


_MEANINGS = {
    "TRAINING_ROLE": "the part of this process, TRAINER or PSERVER",
    "PADDLE_PSERVERS_IP_PORT_LIST": "the endpoints of all servers",
    "PADDLE_TRAINER_ENDPOINTS": "the endpoints of all trainers",
    "PADDLE_TRAINERS_NUM": "how many trainers there are",
    "PADDLE_TRAINER_ID": "the number of this trainer",
    "POD_IP": "the address of this server",
    "PADDLE_PORT": "the port of this server",
}
_WORDS = {Role.WORKER: "TRAINER", Role.SERVER: "PSERVER"}


class RoleMakerBase:
    """Says which part this process plays. A subclass sets what :meth:`generate_role` finds.

    ``_role``, ``_current_id`` (among those of its role), ``_worker_endpoints`` or ``_worker_count``, and
    ``_server_endpoints``.
    """

    def __init__(self) -> None:
        self._role: int | None = None
        self._current_id = -1
        self._worker_endpoints: list[str] = []
        self._server_endpoints: list[str] = []
        self._worker_count = 0
        self._role_is_generated = False
        self._groups: dict[str, WorkerGroup] = {}

    def generate_role(self) -> None:
        """Find out which part this process plays, once."""
        if not self._role_is_generated:
            self._generate()
            self._role_is_generated = True

    def _generate(self) -> None:
        """Set the attributes that the class's docstring names."""

    def is_worker(self) -> bool:
        """Tell whether this process trains."""
        self.generate_role()
        return self._role == Role.WORKER

    def is_server(self) -> bool:
        """Tell whether this process keeps parameters."""
        self.generate_role()
        return self._role == Role.SERVER

    def is_first_worker(self) -> bool:
        """Tell whether this is worker 0, which saves models."""
        return self.is_worker() and self._current_id == 0

    def worker_num(self) -> int:
        """Return how many workers there are."""
        self.generate_role()
        return len(self._worker_endpoints) or self._worker_count

    def server_num(self) -> int:
        """Return how many servers there are."""
        self.generate_role()
        return len(self._server_endpoints)

    def worker_index(self) -> int:
        """Return this process's number among those of its role."""
        self.generate_role()
        return self._current_id

    server_index = worker_index

    def get_trainer_endpoints(self) -> list[str]:
        """Return the workers' endpoints; empty where only their number is known."""
        self.generate_role()
        return self._worker_endpoints

    def get_pserver_endpoints(self) -> list[str]:
        """Return the servers' endpoints."""
        self.generate_role()
        return self._server_endpoints

    def to_string(self) -> str:
        """Return the role in words."""
        self.generate_role()
        return (
            f"role: {self._role}, current_id: {self._current_id}, worker_endpoints: "
            f"{self._worker_endpoints}, server_endpoints: {self._server_endpoints}"
        )

    def __repr__(self) -> str:
        if not self._role_is_generated:
            return f"<{type(self).__name__}: not asked yet>"
        word = _WORDS.get(self._role or 0, "nobody")
        return (
            f"<{type(self).__name__}: {word} {self._current_id}, of {self.worker_num()} workers and "
            f"{self.server_num()} servers>"
        )

    def barrier_worker(self) -> None:
        """Wait until every worker has come here. A server returns at once.

        Raises:
            TrainerLost: some did not come; names them.
        """
        self.gather_workers(None)

    def barrier_all(self) -> None:
        """Wait until every worker and every server has come here.

        Raises:
            TrainerLost: some did not come; names them.
        """
        everybody = self.worker_num() + self.server_num()
        number = self._current_id if self.is_worker() else self.worker_num() + self._current_id
        self._group("all", number, everybody).gather(None)

    def gather_workers(self, values: Any) -> list[Any]:
        """Return the values that workers passed, by number: numbers, words, and lists of them.

        A server returns an empty list at once.

        Raises:
            TrainerLost: some did not come; names them.
        """
        if not self.is_worker():
            return []
        if self.worker_num() == 1:
            return [values]
        return self._group("workers", self._current_id, self.worker_num()).gather(values)

    def gather_bytes(self, array: Bytes) -> list[Bytes]:
        """Return the bytes that workers passed, by number; see :meth:`gather_workers`."""
        if not self.is_worker() or self.worker_num() == 1:
            return [array] * self.is_worker()
        return self._group("workers", self._current_id, self.worker_num()).gather_bytes(array)

    def all_gather(self, input: Any) -> list[Any]:
        """Return the values that workers passed; see :meth:`gather_workers`."""
        return self.gather_workers(input)

    def all_reduce_worker(self, input: Any, output: Any, mode: str = "sum") -> None:
        """Write the sum (``mode`` "max", "min") over all workers of numbers, one by one, into ``output``.

        Raises:
            InvalidValue: there is no such mode.
            TrainerLost: some workers did not come; names them.
        """
        reducers = {"sum": sum, "max": max, "min": min}
        if mode not in reducers:
            raise InvalidValue(f"all_reduce_worker: mode must be sum, max or min, got {mode!r}.")
        columns = self.gather_workers(
            [item.item() if hasattr(item, "item") else item for item in input]
        )
        for i, values in enumerate(zip(*columns, strict=True)):
            output[i] = reducers[mode](values)  # type: ignore[operator]

    def _group(self, whose: str, number: int, count: int) -> WorkerGroup:
        if whose not in self._groups:
            job = ",".join(self._worker_endpoints or self._server_endpoints)
            self._groups[whose] = WorkerGroup(f"{whose} of {job}:", number, count)
        return self._groups[whose]


class PaddleCloudRoleMaker(RoleMakerBase):
    """Reads the environment that job schedulers, ``launch`` and ``launch_ps`` set.

    With servers: TRAINING_ROLE (TRAINER or PSERVER), PADDLE_PSERVERS_IP_PORT_LIST, PADDLE_TRAINERS_NUM; a
    trainer PADDLE_TRAINER_ID, a server POD_IP and PADDLE_PORT. With ``is_collective``:
    PADDLE_TRAINER_ENDPOINTS, PADDLE_TRAINER_ID (0), PADDLE_TRAINING_ROLE (TRAINER).
    """

    def __init__(self, is_collective: bool = False) -> None:
        super().__init__()
        self._is_collective = is_collective

    def _generate(self) -> None:
        if self._is_collective:
            self._generate_collective()
            return
        self._server_endpoints = _endpoints("PADDLE_PSERVERS_IP_PORT_LIST")
        self._worker_count = _number("PADDLE_TRAINERS_NUM", 1)
        role = _role()
        if role == Role.WORKER:
            self._current_id = _number("PADDLE_TRAINER_ID", 0, self._worker_count)
        else:
            self._current_id = _own_number(self._server_endpoints)
        self._role = role

    def _generate_collective(self) -> None:
        self._worker_endpoints = _endpoints("PADDLE_TRAINER_ENDPOINTS")
        for name in ("PADDLE_TRAINING_ROLE", "TRAINING_ROLE"):
            word = os.environ.get(name, "TRAINER")
            if word != "TRAINER":
                raise InvalidArgument(
                    f"{name} is {word!r}: a collective job has trainers alone. Unset it, or leave out "
                    f"is_collective=True."
                )
        count, numbered = len(self._worker_endpoints), "PADDLE_TRAINER_ID" in os.environ
        if "PADDLE_TRAINERS_NUM" in os.environ and _number("PADDLE_TRAINERS_NUM", 1) != count:
            raise InvalidValue(
                f"PADDLE_TRAINERS_NUM is {os.environ['PADDLE_TRAINERS_NUM']}, and PADDLE_TRAINER_ENDPOINTS "
                f"lists {count}: {', '.join(self._worker_endpoints)}. Set one endpoint for each trainer."
            )
        self._current_id = _number("PADDLE_TRAINER_ID", 0, count) if numbered else 0
        own, listed = (
            os.environ.get("PADDLE_CURRENT_ENDPOINT"),
            self._worker_endpoints[self._current_id],
        )
        if own is not None and own != listed:
            number = (
                f"{self._current_id} (PADDLE_TRAINER_ID{'' if numbered else ', which is not set'})"
            )
            raise InvalidValue(
                f"PADDLE_CURRENT_ENDPOINT is {own!r}, but trainer {number} is at {listed!r} in "
                f"PADDLE_TRAINER_ENDPOINTS. Set both to those of this trainer."
            )
        self._role = Role.WORKER


class GeneralRoleMaker(RoleMakerBase):
    """Reads the environment as :class:`PaddleCloudRoleMaker` does, with endpoints of all trainers.

    TRAINING_ROLE, PADDLE_PSERVERS_IP_PORT_LIST, PADDLE_TRAINER_ENDPOINTS; a trainer PADDLE_TRAINER_ID, a server
    PADDLE_PSERVER_ID, or POD_IP and PADDLE_PORT. Processes meet through Ray: the arguments that name a place
    where Paddle's meet (``hdfs_name``, ``hdfs_ugi``, ``path``, ``http_ip_port``) and its time limits are taken
    and not needed.
    """

    _KNOWN = (
        *("hdfs_name", "hdfs_ugi", "path", "http_ip_port"),
        *("init_timeout_seconds", "run_timeout_seconds"),
    )

    def __init__(self, **kwargs: Any) -> None:
        super().__init__()
        _refuse_unknown("GeneralRoleMaker", kwargs, self._KNOWN)

    def _generate(self) -> None:
        self._server_endpoints = _endpoints("PADDLE_PSERVERS_IP_PORT_LIST")
        self._worker_endpoints = _endpoints("PADDLE_TRAINER_ENDPOINTS")
        role = _role()
        if role == Role.WORKER:
            self._current_id = _number("PADDLE_TRAINER_ID", 0, len(self._worker_endpoints))
        elif "PADDLE_PSERVER_ID" in os.environ:
            self._current_id = _number("PADDLE_PSERVER_ID", 0, len(self._server_endpoints))
        else:
            self._current_id = _own_number(self._server_endpoints)
        self._role = role

    def get_local_endpoint(self) -> str:
        """Return this process's endpoint."""
        ends = self.get_trainer_endpoints() if self.is_worker() else self.get_pserver_endpoints()
        return ends[self._current_id]


class UserDefinedRoleMaker(RoleMakerBase):
    """The part that the arguments name, in a job with servers.

    Raises:
        InvalidType: an argument of a wrong type.
        InvalidValue: a number out of range, an unknown role, or endpoints that are none.
    """

    def __init__(
        self,
        current_id: Any = 0,
        role: Any = Role.WORKER,
        worker_num: Any = 0,
        server_endpoints: Sequence[str] | None = None,
    ) -> None:
        super().__init__()
        if role not in _WORDS:
            raise InvalidType(f"role must be Role.WORKER or Role.SERVER, got {role!r}.")
        self._server_endpoints = _listed("server_endpoints", server_endpoints)
        workers = _whole("worker_num", worker_num)
        if workers < 1:
            raise InvalidValue(f"worker_num must be above 0, got {workers}.")
        self._worker_count = workers
        count = workers if role == Role.WORKER else len(self._server_endpoints)
        self._current_id = _checked_id(current_id, count, _WORDS[role])
        self._role = role


class UserDefinedCollectiveRoleMaker(RoleMakerBase):
    """The worker that the arguments name, in a job without servers.

    Raises:
        InvalidType: an argument of a wrong type.
        InvalidValue: a number out of range, or endpoints that are none.
    """

    def __init__(self, current_id: Any = 0, worker_endpoints: Sequence[str] | None = None) -> None:
        super().__init__()
        self._worker_endpoints = _listed("worker_endpoints", worker_endpoints)
        count = len(self._worker_endpoints)
        self._current_id = _checked_id(current_id, count, "TRAINER")
        self._role = Role.WORKER


class MPISymetricRoleMaker(RoleMakerBase):
    """Refused: jobs are not started by MPI."""

    def __init__(self) -> None:
        raise Unsupported(
            "MPISymetricRoleMaker: jobs are not started by MPI here. Use PaddleCloudRoleMaker, whose "
            "environment python -m rowlock.distributed.launch_ps sets."
        )


def _refuse_unknown(maker: str, names: Iterable[str], known: Sequence[str]) -> None:
    for name in names:
        if name not in known:
            raise InvalidType(f"{maker} has no argument {name!r}; it takes {', '.join(known)}.")


def _listed(what: str, endpoints: Any) -> list[str]:
    if not isinstance(endpoints, (list, tuple)):
        raise InvalidType(f"{what} must be a list such as ['127.0.0.1:6170'], got {endpoints!r}.")
    return checked_endpoints(what, endpoints)


def _environment(name: str) -> str:
    try:
        return os.environ[name]
    except KeyError:
        raise MissingVariable(
            f"the environment has no {name}, which tells {_MEANINGS[name]}. Start the script "
            f"by python -m rowlock.distributed.launch (collective) or launch_ps (with servers), set it by "
            f"hand, or use UserDefinedRoleMaker."
        ) from None


def _endpoints(name: str) -> list[str]:
    return checked_endpoints(f"{name} ({_MEANINGS[name]})", _environment(name))


def _number(name: str, least: int, below: int | None = None) -> int:
    text = _environment(name)
    if not re.fullmatch(r"\d+", text.strip()):
        raise InvalidValue(f"{name} must be a whole number, the environment has {text!r}.")
    value = int(text)
    if value < least or (below is not None and value >= below):
        limits = f"at least {least}" if below is None else f"from {least} to {below - 1}"
        raise InvalidValue(f"{name} must be {limits}, the environment has {value}.")
    return value


def _role() -> int:
    word = _environment("TRAINING_ROLE")
    for role, spelling in _WORDS.items():
        if word == spelling:
            return role
    raise InvalidValue(f"TRAINING_ROLE must be TRAINER or PSERVER, the environment has {word!r}.")


def _own_number(endpoints: Sequence[str]) -> int:
    """Return the number of the server at POD_IP and PADDLE_PORT."""
    own = f"{_environment('POD_IP')}:{_environment('PADDLE_PORT')}"
    if own not in endpoints:
        raise InvalidValue(
            f"this server is at {own!r} (POD_IP and PADDLE_PORT), which PADDLE_PSERVERS_IP_PORT_LIST does not "
            f"have: {', '.join(endpoints)}. Set them to one of these, letter by letter."
        )
    return endpoints.index(own)


def _whole(what: str, value: Any) -> int:
    if not isinstance(value, int) or isinstance(value, bool):
        raise InvalidType(f"{what} must be a whole number, got {value!r}.")
    return value


def _checked_id(current_id: int, count: int, word: str) -> int:
    if not 0 <= _whole("current_id", current_id) < count:
        raise InvalidValue(
            f"current_id must be from 0 to {count - 1} for a {word}, got {current_id}."
        )
    return current_id


class CloudRoleMaker(PaddleCloudRoleMaker):
    """Paddle 2.x's PaddleCloudRoleMaker: a process whose environment names no job trains alone.

    ``options`` of Paddle's own meeting place (``init_timeout_seconds``, ``path``) are taken and not needed.
    """

    def __init__(self, is_collective: bool = False, **options: Any) -> None:
        super().__init__(is_collective)

    def _generate(self) -> None:
        names = ("PADDLE_TRAINER_ENDPOINTS",) if self._is_collective else _PSERVERS
        if any(name in os.environ for name in names):
            super()._generate()
        else:
            self._worker_endpoints, self._current_id, self._role = [_ALONE], 0, Role.WORKER


class DefinedRoleMaker(RoleMakerBase):
    """Paddle 2.x's UserDefinedRoleMaker: the part that the arguments name.

    With ``is_collective``: ``current_id`` and ``worker_endpoints``. With servers: ``current_id``, ``role``,
    ``server_endpoints``, and ``worker_num`` or ``worker_endpoints``.

    Raises:
        InvalidType: an unknown argument, or one of a wrong type.
        InvalidValue: a number out of range, an unknown role, or endpoints that are none.
    """

    _KNOWN = ("current_id", "role", "worker_num", "worker_endpoints", "server_endpoints", "path")

    def __init__(
        self, is_collective: bool = False, init_gloo: bool = False, **options: Any
    ) -> None:
        super().__init__()
        _refuse_unknown("UserDefinedRoleMaker", options, self._KNOWN)
        current_id, workers = options.get("current_id", 0), options.get("worker_endpoints") or []
        if is_collective:
            maker: RoleMakerBase = UserDefinedCollectiveRoleMaker(current_id, workers)
        else:
            count = options.get("worker_num", 0) or len(workers)
            role, servers = options.get("role", Role.WORKER), options.get("server_endpoints")
            maker = UserDefinedRoleMaker(current_id, role, count, servers)
            maker._worker_endpoints = _listed("worker_endpoints", workers) if workers else []
        self.__dict__.update(maker.__dict__)


_PSERVERS = ("PADDLE_PSERVERS_IP_PORT_LIST", "TRAINING_ROLE")
_ALONE = "127.0.0.1:6170"  # Paddle's endpoint of a worker without a job
