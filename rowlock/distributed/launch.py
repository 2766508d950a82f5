"""``python -m rowlock.distributed.launch script.py``: start the workers of a job on this host.

Each gets PADDLE_TRAINER_ID, PADDLE_CURRENT_ENDPOINT, PADDLE_TRAINERS_NUM, PADDLE_TRAINER_ENDPOINTS and
FLAGS_selected_gpus. They meet in the Ray cluster of RAY_ADDRESS, or in one that is started for them. With
``--server_num`` or ``--servers`` parameter servers are started too, as by ``launch_ps``.

The module can be called, too: ``rowlock.distributed.launch(servers, trainers)``.
"""

from __future__ import annotations

import os
import sys
from argparse import ArgumentParser, Namespace
from collections.abc import Mapping, Sequence
from types import ModuleType
from typing import TYPE_CHECKING

from ..alias import is_installed
from ..cluster.fleet.command_line import job_parser, run_command
from ..cluster.fleet.jobs import cloud_hosts, collective_members, free_ports, server_members
from ..cluster.fleet.processes import JobProcess
from ..executor.device.gpus import local_gpus
from ..strategies.errors import InvalidValue

if TYPE_CHECKING:
    from ..cluster.pserver.topology import Topology, Trainer
    from ..graph.program.program import Program


def parser() -> ArgumentParser:
    """Return the parser of the command line."""
    line = job_parser("rowlock.distributed.launch", __doc__, log_dir=None)
    line.add_argument(
        "--use_paddlecloud", action="store_true", help="take hosts and port from the environment"
    )
    line.add_argument(
        "--started_port", type=int, help="the first port (6070; on one host a free one)"
    )
    line.add_argument(
        "--nproc_per_node", type=int, help="workers on each host (one for each GPU, or one)"
    )
    line.add_argument(
        *("--selected_gpus", "--gpus", "--devices"),
        help="numbers of GPUs, with commas, one for each worker",
    )
    line.add_argument("--server_num", type=int, help="how many parameter servers, beside workers")
    line.add_argument("--worker_num", type=int, help="how many workers (with servers: as many)")
    line.add_argument("--servers", help="the servers' endpoints, with commas, in place of ports")
    line.add_argument(
        "--log_level", type=int, default=20, help="above 20: do not print the settings"
    )
    return line


def main(argv: Sequence[str] | None = None) -> int:
    """Run a job; return its status."""
    return run_command(parser(), members, is_installed(), argv)


def members(arguments: Namespace) -> list[JobProcess]:
    """Return this host's workers of the job that a command line asks for.

    Raises:
        InvalidValue: its parts contradict each other.
    """
    if arguments.server_num is not None or arguments.servers:
        return _with_servers(arguments)
    if arguments.nproc_per_node is None:
        arguments.nproc_per_node = arguments.worker_num
    gpus = _gpus(arguments)
    count = arguments.nproc_per_node if arguments.nproc_per_node is not None else len(gpus) or 1
    if count < 1 or (gpus and count != len(gpus)):
        wanted = f"{len(gpus)}, one for each GPU" if gpus else "1 or more"
        raise InvalidValue(f"--nproc_per_node is {count}: give {wanted}.")
    if arguments.use_paddlecloud:
        cloud_hosts(arguments)
    hosts = [ip.strip() for ip in arguments.cluster_node_ips.split(",")]
    return collective_members(hosts, arguments.node_ip, count, arguments.started_port, gpus)


def _with_servers(arguments: Namespace) -> list[JobProcess]:
    """Return the workers and servers of a job on this host."""
    if "," in arguments.cluster_node_ips:
        raise InvalidValue(
            "--ips names several hosts; workers and servers are started on this one. Start others by hand, "
            "with the same PADDLE_PSERVERS_IP_PORT_LIST and RAY_ADDRESS."
        )
    servers = [text.strip() for text in (arguments.servers or "").split(",") if text.strip()]
    count = len(servers) if arguments.server_num is None else arguments.server_num
    if count < 1 or (servers and count != len(servers)):
        raise InvalidValue(
            f"--server_num is {count}, and --servers lists {len(servers)}: name one, or make them agree."
        )
    workers = count if arguments.worker_num is None else arguments.worker_num
    return server_members(workers, servers or [f"127.0.0.1:{port}" for port in free_ports(count)])


def _gpus(arguments: Namespace) -> list[str]:
    """Return a GPU for each worker; none where there are none, or fewer than workers that were asked for.

    They are numbered among those that CUDA_VISIBLE_DEVICES shows; ``--selected_gpus`` names them as it does.
    """
    present = [str(i) for i in range(local_gpus())]
    if arguments.selected_gpus is None:
        count = arguments.nproc_per_node
        return present[: count if count is not None else len(present)] if present else []
    visible = [name.strip() for name in os.environ.get("CUDA_VISIBLE_DEVICES", "").split(",")]
    names = visible if any(visible) else present
    selection: list[str] = [name.strip() for name in arguments.selected_gpus.split(",")]
    for name in selection:
        if name not in names[: len(present)]:
            raise InvalidValue(
                f"--selected_gpus has {name!r}; this host has {len(present)} GPU(s)"
                f"{': ' + ', '.join(names) if present else ''}."
            )
    return [str(names.index(name)) for name in selection]


class _CallableModule(ModuleType):
    """``rowlock.distributed.launch``, which users also call."""

    def __call__(
        self, servers: Mapping[str, tuple[Program, Program]], trainers: Sequence[Trainer]
    ) -> Topology:
        """Return :func:`rowlock.cluster.pserver.topology.launch` of these servers and trainers."""
        from ..cluster.pserver import topology

        return topology.launch(servers, trainers)


sys.modules[__name__].__class__ = _CallableModule

if __name__ == "__main__":
    sys.exit(main())
