"""``python -m rowlock.distributed.launch script.py``: start the workers of a job without servers on this host.

Each gets PADDLE_TRAINER_ID, PADDLE_CURRENT_ENDPOINT, PADDLE_TRAINERS_NUM, PADDLE_TRAINER_ENDPOINTS and
FLAGS_selected_gpus. They meet in the Ray cluster of RAY_ADDRESS, or in one that is started for them.

The module can be called, too: ``rowlock.distributed.launch(servers, trainers)``.
"""

from __future__ import annotations

import sys
from argparse import REMAINDER, ArgumentParser, Namespace
from collections.abc import Mapping, Sequence
from types import ModuleType
from typing import TYPE_CHECKING

from ..alias import is_installed
from ..cluster.fleet.jobs import collective_members, common_ray
from ..cluster.fleet.processes import run_job, script_command
from ..executor.device.gpus import local_gpus
from ..strategies.errors import EnforceNotMet, InvalidValue

if TYPE_CHECKING:
    from ..cluster.pserver.topology import Topology, Trainer
    from ..graph.program.program import Program


def parser() -> ArgumentParser:
    """Return the parser of the command line."""
    line = ArgumentParser("rowlock.distributed.launch", description=__doc__)
    line.add_argument(
        "--cluster_node_ips", default="127.0.0.1", help="addresses of all hosts, with commas"
    )
    line.add_argument("--node_ip", default="127.0.0.1", help="the address of this host")
    line.add_argument(
        "--use_paddlecloud", action="store_true", help="take the three from the environment"
    )
    line.add_argument(
        "--started_port", type=int, help="the first port (6070; on one host a free one)"
    )
    line.add_argument(
        "--nproc_per_node", type=int, help="workers on each host (one for each GPU, or one)"
    )
    line.add_argument("--selected_gpus", help="numbers of GPUs, with commas, one for each worker")
    line.add_argument(
        "--print_config", type=_switch, default=True, help="True: print these settings first"
    )
    line.add_argument(
        "--log_level", type=int, default=20, help="above 20: do not print the settings"
    )
    line.add_argument("--log_dir", help="a folder for what workers write: workerlog.<number>")
    line.add_argument("training_script", help="the script that each worker runs")
    line.add_argument("training_script_args", nargs=REMAINDER, help="its arguments")
    return line


def _switch(text: str) -> bool:
    if text not in ("True", "False", "1", "0"):
        raise ValueError(text)
    return text in ("True", "1")


def main(argv: Sequence[str] | None = None) -> int:
    """Run a job; return its status."""
    arguments = parser().parse_args(argv)
    if arguments.print_config and arguments.log_level <= 20:
        settings = (f"{name}: {value}" for name, value in sorted(vars(arguments).items()))
        print("\n".join(settings), flush=True)
    try:
        return launch(arguments)
    except EnforceNotMet as error:
        print(f"rowlock.distributed.launch: {error}", file=sys.stderr)
        return 2


def launch(arguments: Namespace) -> int:
    """Run the job that arguments of the command line describe; return its status.

    Raises:
        InvalidValue: they contradict each other.
        MissingFile: there is no such script.
    """
    gpus = _gpus(arguments)
    count = arguments.nproc_per_node if arguments.nproc_per_node is not None else len(gpus) or 1
    if count < 1 or (gpus and count != len(gpus)):
        raise InvalidValue(
            f"--nproc_per_node is {count}, for {len(gpus)} GPU(s): each worker has one, or none has."
        )
    hosts, own, port = _hosts(arguments)
    command = script_command(
        arguments.training_script, arguments.training_script_args, is_installed()
    )
    members = collective_members(hosts, own, count, port, gpus)
    with common_ray(len(hosts), len(members)):
        return run_job(members, command, arguments.log_dir)


def _hosts(arguments: Namespace) -> tuple[list[str], str, int | None]:
    """Return the hosts, this one, and the first port."""
    hosts, own, port = arguments.cluster_node_ips, arguments.node_ip, arguments.started_port
    if arguments.use_paddlecloud:
        from ..cluster.fleet.jobs import cloud_hosts

        hosts, own, port = cloud_hosts(hosts, own, port)
    return [ip.strip() for ip in hosts.split(",")], own, port


def _gpus(arguments: Namespace) -> list[str]:
    """Return a GPU for each worker; none where there are none, or fewer than workers that were asked for."""
    present = [str(i) for i in range(local_gpus())]
    if arguments.selected_gpus is None:
        count = arguments.nproc_per_node
        return present[: count if count is not None else len(present)] if present else []
    chosen: list[str] = [number.strip() for number in arguments.selected_gpus.split(",")]
    for number in chosen:
        if number not in present:
            raise InvalidValue(
                f"--selected_gpus has {number!r}; this host has {len(present)} GPU(s)"
                f"{': ' + ', '.join(present) if present else ''}."
            )
    return chosen


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
