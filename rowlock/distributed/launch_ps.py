"""``python -m rowlock.distributed.launch_ps script.py``: start workers and parameter servers on this host.

Each gets TRAINING_ROLE, PADDLE_PSERVERS_IP_PORT_LIST and PADDLE_TRAINERS_NUM; a worker PADDLE_TRAINER_ID, a
server POD_IP and PADDLE_PORT. They meet in the Ray cluster of RAY_ADDRESS, or in one that is started for them.
"""

from __future__ import annotations

import sys
from argparse import REMAINDER, ArgumentParser, Namespace
from collections.abc import Sequence

from ..alias import is_installed
from ..cluster.fleet.jobs import common_ray, server_members
from ..cluster.fleet.processes import run_job, script_command
from ..strategies.errors import EnforceNotMet, InvalidValue
from .launch import _switch


def parser() -> ArgumentParser:
    """Return the parser of the command line."""
    line = ArgumentParser("rowlock.distributed.launch_ps", description=__doc__)
    line.add_argument(
        "--cluster_node_ips", default="127.0.0.1", help="this host: all processes run on it"
    )
    line.add_argument("--node_ip", default="127.0.0.1", help="the address of this host")
    line.add_argument("--start_port", type=int, default=6170, help="the first server's port")
    line.add_argument(
        "--print_config", type=_switch, default=True, help="True: print these settings first"
    )
    line.add_argument(
        "--endpoints", default="", help="the servers' endpoints, with commas, in place of ports"
    )
    line.add_argument("--worker_num", type=int, default=2, help="how many workers")
    line.add_argument("--server_num", type=int, default=2, help="how many servers")
    line.add_argument(
        "--log_dir", default="logs", help="a folder for workerlog.<number>, serverlog.<number>"
    )
    line.add_argument("training_script", help="the script that each process runs")
    line.add_argument("training_script_args", nargs=REMAINDER, help="its arguments")
    return line


def main(argv: Sequence[str] | None = None) -> int:
    """Run a job; return its status."""
    arguments = parser().parse_args(argv)
    if arguments.print_config:
        settings = (f"{name}: {value}" for name, value in sorted(vars(arguments).items()))
        print("\n".join(settings), flush=True)
    try:
        return launch(arguments)
    except EnforceNotMet as error:
        print(f"rowlock.distributed.launch_ps: {error}", file=sys.stderr)
        return 2


def launch(arguments: Namespace) -> int:
    """Run the job that arguments of the command line describe; return its status.

    Raises:
        InvalidValue: they contradict each other.
        MissingFile: there is no such script.
    """
    if "," in arguments.cluster_node_ips:
        raise InvalidValue(
            "--cluster_node_ips names several hosts; launch_ps starts all processes on this one. Start the "
            "others' by hand, with the same PADDLE_PSERVERS_IP_PORT_LIST and RAY_ADDRESS."
        )
    first, count = arguments.start_port, arguments.server_num
    servers = [f"127.0.0.1:{port}" for port in range(first, first + count)]
    if arguments.endpoints:
        servers = [endpoint.strip() for endpoint in arguments.endpoints.split(",")]
    command = script_command(
        arguments.training_script, arguments.training_script_args, is_installed()
    )
    members = server_members(arguments.worker_num, servers)
    with common_ray(1, len(members)):
        return run_job(members, command, arguments.log_dir or None)


if __name__ == "__main__":
    sys.exit(main())
