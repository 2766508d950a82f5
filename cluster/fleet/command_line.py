"""The command lines that start a job's processes on this host: what ``launch`` and ``launch_ps`` share."""

from __future__ import annotations

import sys
from argparse import REMAINDER, ArgumentParser, ArgumentTypeError, Namespace
from collections.abc import Callable, Sequence

from ...strategies.errors import EnforceNotMet
from .jobs import common_ray
from .processes import JobProcess, run_job, script_command

_INFO = 20  # the level of logging at which settings are printed
_WRONG = 2  # the status of a command line that cannot be


def job_parser(command: str, description: str | None, log_dir: str | None) -> ArgumentParser:
    """Return a parser of what all jobs have; ``log_dir`` is the default."""
    line = ArgumentParser(command, description=description)
    line.add_argument(
        "--cluster_node_ips",
        "--ips",
        default="127.0.0.1",
        help="addresses of all hosts, with commas",
    )
    line.add_argument("--node_ip", default="127.0.0.1", help="the address of this host")
    line.add_argument(
        "--print_config", type=_switch, default=True, help="True: print these settings first"
    )
    line.add_argument("--log_dir", default=log_dir, help="a folder for each process's output")
    line.add_argument("training_script", help="the script that each process runs")
    line.add_argument("training_script_args", nargs=REMAINDER, help="its arguments")
    return line


def _switch(text: str) -> bool:
    if text.lower() not in ("true", "false", "1", "0"):
        raise ArgumentTypeError(f"must be True or False, got {text!r}")
    return text.lower() in ("true", "1")


def run_command(
    line: ArgumentParser,
    members: Callable[[Namespace], Sequence[JobProcess]],
    aliased: bool,
    argv: Sequence[str] | None = None,
) -> int:
    """Run the job of a command line (None: of this process); return its status.

    ``members`` returns this host's processes. ``aliased``: they run the script with Rowlock as ``paddle``.
    """
    arguments = line.parse_args(argv)
    if arguments.print_config and getattr(arguments, "log_level", _INFO) <= _INFO:
        settings = (f"{name}: {value}" for name, value in sorted(vars(arguments).items()))
        print("\n".join(settings), flush=True)
    try:
        command = script_command(arguments.training_script, arguments.training_script_args, aliased)
        processes = members(arguments)
        with common_ray(len(arguments.cluster_node_ips.split(",")), len(processes)):
            return run_job(processes, command, arguments.log_dir or None)
    except EnforceNotMet as error:
        print(f"{line.prog}: {error}", file=sys.stderr)
        return _WRONG
