"""The ``rowlock`` command."""

from __future__ import annotations

import argparse
import importlib.util
import json
import os
import sys
from collections.abc import Sequence
from typing import Any

from . import __version__


def main(argv: Sequence[str] | None = None) -> int:
    """Run a subcommand; returns the exit status."""
    argv = list(sys.argv[1:] if argv is None else argv)
    parser = argparse.ArgumentParser(
        prog="rowlock",
        description="Static-graph training on a Ray cluster.",
        epilog="A program written for Paddle runs by python -m rowlock.alias train.py.",
    )
    commands = parser.add_subparsers(dest="command", required=True)
    commands.add_parser("demo", help="train on handwritten digits, two replicas", add_help=False)
    ops = commands.add_parser("ops", help="show where an operator is declared and computed")
    ops.add_argument("name", nargs="?", help="an op type; without one, all are listed")
    ops.add_argument("--table", action="store_true", help="what computes each op on each back end")
    ops.add_argument("--json", action="store_true", help="the table as data, with reasons")
    commands.add_parser("coverage", help="print which of Paddle's names and ops are built")
    parser.add_argument("--version", action="version", version=f"rowlock {__version__}")
    if argv[:1] == ["demo"]:  # it has arguments of its own
        return _demo(argv[1:])
    args = parser.parse_args(argv)
    if args.command == "ops" and args.json and not args.table:
        parser.error("--json needs --table")
    try:
        status = _printed(args)
        sys.stdout.flush()
    except BrokenPipeError:  # what reads the output has enough: rowlock ops --table | head
        # for Python's flush at the end
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        return 1
    return status


def _printed(args: argparse.Namespace) -> int:
    if args.command == "coverage":
        from .coverage import text

        print(text(), end="")
        return 0
    return _table(args.name, args.json) if args.table else _ops(args.name)


def _demo(argv: Sequence[str]) -> int:
    missing = [
        name for name in ("sklearn", "matplotlib", "tqdm") if not importlib.util.find_spec(name)
    ]
    if missing:
        hint = "pip install '.[demo]' in Rowlock's folder"
        print(f"The demo needs {', '.join(missing)}: {hint}", file=sys.stderr)
        return 2
    from .demo import main as demo

    return demo(argv)


def _ops(name: str | None) -> int:
    from .executor.kernels.grid import place, row
    from .graph.ops.registry import BLOCK_OPS, MESSAGE_OPS, OPS

    if name is None:
        print("\n".join(sorted(OPS)))
        return 0
    if name in BLOCK_OPS:
        print(_signature(BLOCK_OPS[name]))
        print(
            "  no kernels: read into the graph (graph/ir/reader.py), with the block or array it stands for"
        )
        return 0
    if name in MESSAGE_OPS:
        print(_signature(MESSAGE_OPS[name]))
        print(
            "  no kernels: moves values between processes (graph/ops/rpc.py, graph/ops/trainer_collective.py)"
        )
        return 0
    if not _declared(name):
        return 2
    op = OPS[name]
    print(_signature(op))
    print(f"  shape rule: {place(op.shape)}")
    if op.scalar is not None:
        print(f"  scalar expression: {place(op.scalar)}")
    if op.formula is not None:
        print(f"  formula: {place(op.formula)}")
    for back_end, cell in row(name, _back_ends()).items():
        print(f"  {cell.mark} {back_end}: {'; '.join(filter(None, (cell.where, cell.why)))}")
    print(f"  gradient: {op.grad.type if op.grad else 'none'}")
    return 0


def _signature(op: Any) -> str:
    return f"{op.type}({', '.join(op.inputs)}) -> {', '.join(op.outputs)}"


def _table(name: str | None, as_data: bool) -> int:
    """Print the grid of ops and back ends, of one op if it is named (as data)."""
    from .executor.kernels.grid import MARKS, row, table
    from .graph.ops.registry import OPS

    if name is not None and not _declared(name):
        return 2
    here = _back_ends()
    if not as_data:
        print(table(here, [name] if name else sorted(OPS)))
        return 0
    ops = {
        op: {back_end: cell._asdict() for back_end, cell in row(op, here).items()}
        for op in ([name] if name else sorted(OPS))
    }
    print(json.dumps({"marks": MARKS, "back_ends": here, "ops": ops}, indent=1))
    return 0


def _back_ends() -> dict[str, str]:
    """Return the versions of array modules and libraries that are here, by name."""
    import numpy

    from .executor.device.gpus import local_gpus, open_gpu
    from .executor.kernels.capabilities import installed

    here = {"numpy": numpy.__version__, **installed()}
    if local_gpus():
        gpu = open_gpu(0)
        here |= {"cupy": getattr(gpu.xp, "__version__", ""), **installed(gpu)}
    return here


def _declared(name: str) -> bool:
    """Tell whether there is an op; say so if there is none."""
    from .graph.ops.registry import OPS
    from .strategies.errors import nearest

    if name not in OPS:
        print(f"no operator {name!r} is declared.{nearest(name, OPS)}", file=sys.stderr)
    return name in OPS
