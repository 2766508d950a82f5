"""``python -m rowlock.distributed.launch_ps script.py``: start workers and parameter servers on this host.

Each gets TRAINING_ROLE, PADDLE_PSERVERS_IP_PORT_LIST and PADDLE_TRAINERS_NUM; a worker PADDLE_TRAINER_ID, a
server POD_IP and PADDLE_PORT. They meet in the Ray cluster of RAY_ADDRESS, or in one that is started for them.
"""

from __future__ import annotations

import sys
from argparse import ArgumentParser, Namespace
from collections.abc import Sequence

from ..alias import is_installed
from ..cluster.fleet.command_line import job_parser, run_command
from ..cluster.fleet.jobs import server_members
from ..cluster.fleet.processes import JobProcess
from ..strategies.errors import InvalidValue


def parser() -> ArgumentParser:
    """Return the parser of the command line."""
    line = job_parser("rowlock.distributed.launch_ps", __doc__, log_dir="logs")
    line.add_argument("--start_port", type=int, default=6170, help="the first server's port")
    line.add_argument(
        "--endpoints", default="", help="the servers' endpoints, with commas, in place of ports"
    )
    line.add_argument("--worker_num", type=int, default=2, help="how many workers")
    line.add_argument(
        "--server_num", type=int, help="how many servers (2, or as many as --endpoints has)"
    )
    return line


def main(argv: Sequence[str] | None = None) -> int:
    """Run a job; return its status."""
    return run_command(parser(), members, is_installed(), argv)


def members(arguments: Namespace) -> list[JobProcess]:
    """Return the processes that a command line asks for.

    Raises:
        InvalidValue: several hosts, no workers, endpoints that are none, or another number of them.
    """
    if "," in arguments.cluster_node_ips:
        raise InvalidValue(
            "--cluster_node_ips names several hosts; launch_ps starts all processes on this one. Start the "
            "others' by hand, with the same PADDLE_PSERVERS_IP_PORT_LIST and RAY_ADDRESS."
        )
    first, count = arguments.start_port, arguments.server_num
    if arguments.endpoints:
        servers = arguments.endpoints.split(",")
        if count not in (None, len(servers)):
            raise InvalidValue(
                f"--server_num is {count}, and --endpoints lists {len(servers)}: name one, or make them agree."
            )
    else:
        servers = [f"127.0.0.1:{first + i}" for i in range(2 if count is None else count)]
    return server_members(arguments.worker_num, servers)


if __name__ == "__main__":
    sys.exit(main())
