"""The environments of a job's processes: those that scripts of PaddlePaddle read."""

from __future__ import annotations

import contextlib
import os
import socket
from argparse import Namespace
from collections.abc import Iterator, Sequence

from ...strategies.endpoints import LARGEST_PORT, checked_endpoints
from ...strategies.errors import InvalidValue
from .processes import JobProcess

STARTED_PORT = 6070


def collective_members(
    node_ips: Sequence[str], node_ip: str, count: int, started_port: int | None, gpus: Sequence[str]
) -> list[JobProcess]:
    """Return this host's workers of a job without servers, ``count`` on each host.

    ``gpus``: one for each of them, or none. Ports are counted from ``started_port``; on one host they are free
    ones without it.

    Raises:
        InvalidValue: this host is not among those of the job, or a port is none.
    """
    if node_ip not in node_ips:
        raise InvalidValue(
            f"--node_ip {node_ip} is not among --cluster_node_ips {','.join(node_ips)}: it names this host, "
            f"and each host starts its own processes."
        )
    ports = _ports(count, started_port, one_host=len(node_ips) == 1)
    endpoints = [f"{ip}:{port}" for ip in node_ips for port in ports]
    checked_endpoints("--cluster_node_ips", endpoints)
    first = list(node_ips).index(node_ip) * count
    return [_worker(first + i, endpoints, gpus[i] if gpus else "", i) for i in range(count)]


def _worker(rank: int, endpoints: Sequence[str], gpu: str, local: int) -> JobProcess:
    environment = {
        "TRAINING_ROLE": "TRAINER",
        "PADDLE_TRAINER_ID": str(rank),
        "PADDLE_CURRENT_ENDPOINT": endpoints[rank],
        "PADDLE_TRAINERS_NUM": str(len(endpoints)),
        "PADDLE_TRAINER_ENDPOINTS": ",".join(endpoints),
    }
    if gpu:
        environment["FLAGS_selected_gpus"] = gpu
    return JobProcess(f"trainer {rank} ({endpoints[rank]})", environment, f"workerlog.{local}")


def server_members(workers: int, servers: str | Sequence[str]) -> list[JobProcess]:
    """Return the workers and the servers of a job on this host.

    Raises:
        InvalidValue: endpoints that are none, or no workers.
    """
    if workers < 1:
        raise InvalidValue(f"--worker_num must be above 0, got {workers}.")
    servers = checked_endpoints("--endpoints (or --start_port and --server_num)", servers)
    shared = {
        "PADDLE_PSERVERS_IP_PORT_LIST": ",".join(servers),
        "PADDLE_TRAINERS_NUM": str(workers),
    }
    members = []
    for i, endpoint in enumerate(servers):
        host, _, port = endpoint.rpartition(":")
        own = {
            "TRAINING_ROLE": "PSERVER",
            "POD_IP": host,
            "PADDLE_PORT": port,
            "PADDLE_PSERVER_ID": str(i),
        }
        members.append(
            JobProcess(f"server {i} ({endpoint})", {**shared, **own}, f"serverlog.{i}", True)
        )
    for i in range(workers):
        own = {"TRAINING_ROLE": "TRAINER", "PADDLE_TRAINER_ID": str(i)}
        members.append(JobProcess(f"worker {i}", {**shared, **own}, f"workerlog.{i}"))
    return members


def _ports(count: int, first_port: int | None, one_host: bool) -> list[int]:
    if first_port is None and one_host:
        return free_ports(count)
    first = STARTED_PORT if first_port is None else first_port
    if not 0 < first <= LARGEST_PORT - count + 1:
        raise InvalidValue(
            f"--started_port must be a port from 1 to {LARGEST_PORT - count + 1}, got {first}."
        )
    return list(range(first, first + count))


def free_ports(count: int) -> list[int]:
    """Return ports of this host that nothing listens at."""
    with contextlib.ExitStack() as stack:
        sockets = [stack.enter_context(socket.socket()) for _ in range(count)]
        for listener in sockets:
            listener.bind(("", 0))
        return [listener.getsockname()[1] for listener in sockets]


@contextlib.contextmanager
def common_ray(hosts: int, members: int) -> Iterator[None]:
    """Let a job's processes find each other: through RAY_ADDRESS, or a Ray that is started here for them.

    Raises:
        InvalidValue: processes on several hosts need a Ray cluster, and RAY_ADDRESS names none.
    """
    if os.environ.get("RAY_ADDRESS") or hosts * members == 1:
        yield
        return
    if hosts > 1:
        raise InvalidValue(
            "processes on several hosts find each other through a Ray cluster, and RAY_ADDRESS names none: "
            "start one (ray start --head; ray start --address=... on the others), and set RAY_ADDRESS on each."
        )
    import ray

    from ...strategies.cluster import ClusterConfig
    from ..ray.session import join_ray, leave_ray

    join_ray(ClusterConfig())
    os.environ["RAY_ADDRESS"] = ray.get_runtime_context().gcs_address
    try:
        yield
    finally:
        del os.environ["RAY_ADDRESS"]
        leave_ray()


def cloud_hosts(arguments: Namespace) -> None:
    """Take hosts, this host and the first port from PADDLE_TRAINERS, POD_IP and PADDLE_PORT where they are set.

    Raises:
        InvalidValue: PADDLE_PORT is no number.
    """
    environment = os.environ
    arguments.cluster_node_ips = environment.get("PADDLE_TRAINERS", arguments.cluster_node_ips)
    arguments.node_ip = environment.get("POD_IP", arguments.node_ip)
    port = environment.get("PADDLE_PORT", "")
    if port:
        if not port.isdecimal():
            raise InvalidValue(f"PADDLE_PORT must be a port, the environment has {port!r}.")
        arguments.started_port = int(port)
