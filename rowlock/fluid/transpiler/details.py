"""``fluid.transpiler.details``."""

from __future__ import annotations

from typing import TextIO

from ...graph.program.program import Program
from ...graph.transpiler.ports import wait_server_ready
from ...names import publish_listed
from ..debugger import pprint_block_codes


def program_to_code(
    prog: Program, fout: TextIO | None = None, skip_op_callstack: bool = True
) -> None:
    """Print a program's variables and ops, gradients and updates too, or write them into a file.

    ``skip_op_callstack``: accepted as Paddle does; the lines that built ops are not printed.
    """
    for block in prog.blocks:
        print(pprint_block_codes(block, show_backward=True), file=fout)


__all__ = ["program_to_code", "wait_server_ready"]

publish_listed(__name__)
