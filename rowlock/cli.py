"""The ``rowlock`` command."""

from __future__ import annotations

import argparse
import importlib.util
import inspect
import sys
from collections.abc import Sequence
from functools import partial

from . import __version__


def main(argv: Sequence[str] | None = None) -> int:
    """Run a subcommand; returns the exit status."""
    argv = list(sys.argv[1:] if argv is None else argv)
    parser = argparse.ArgumentParser(
        prog="rowlock", description="Static-graph training on a Ray cluster."
    )
    commands = parser.add_subparsers(dest="command", required=True)
    commands.add_parser("demo", help="train on handwritten digits, two replicas", add_help=False)
    ops = commands.add_parser("ops", help="show where an operator is declared and computed")
    ops.add_argument("name", nargs="?", help="an op type; without one, all are listed")
    commands.add_parser("coverage", help="print which of Paddle's names and ops are built")
    parser.add_argument("--version", action="version", version=f"rowlock {__version__}")
    if argv[:1] == ["demo"]:  # it has arguments of its own
        return _demo(argv[1:])
    args = parser.parse_args(argv)
    if args.command == "coverage":
        from .coverage import text

        print(text(), end="")
        return 0
    return _ops(args.name)


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
    from .executor.kernels.registry import KERNELS
    from .graph.ops.registry import OPS
    from .strategies.errors import nearest

    if name is None:
        print("\n".join(sorted(OPS)))
        return 0
    if name not in OPS:
        print(f"no operator {name!r} is declared.{nearest(name, OPS)}", file=sys.stderr)
        return 2
    op = OPS[name]
    print(f"{name}({', '.join(op.inputs)}) -> {', '.join(op.outputs)}")
    print(f"  shape rule: {_place(op.shape)}")
    if op.scalar is not None:
        print(f"  scalar expression: {_place(op.scalar)}")
    for (op_type, back_end), kernel in sorted(KERNELS.items()):
        if op_type == name:
            print(f"  {back_end} kernel: {_place(kernel.function)}")
    print(f"  gradient: {op.grad.type if op.grad else 'none'}")
    return 0


def _place(function: object) -> str:
    function = inspect.unwrap(function) if callable(function) else function
    while isinstance(function, partial):
        function = function.func
    code = getattr(function, "__code__", None)
    return f"{code.co_filename}:{code.co_firstlineno}" if code is not None else repr(function)
