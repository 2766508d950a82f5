"""Snapshots of programs, so that compiled programs do not change when the user goes on building."""

from __future__ import annotations

from ...strategies.errors import require_type
from .clone import copy_program
from .program import Program
from .seeds import keep_seed


class ProgramGraph:
    """A program as it is now, for passes and compilation (Paddle's ``core.Graph``).

    Raises:
        InvalidType: ``program`` is no Program.
    """

    def __init__(self, program: Program) -> None:
        require_type(program, Program, "Graph takes a Program")
        self.program = snapshot(program)


class IrGraph:
    """A graph and whether it is for testing (Paddle's ``framework.IrGraph``)."""

    def __init__(self, graph: ProgramGraph, for_test: bool = False) -> None:
        require_type(graph, ProgramGraph, "IrGraph takes a Graph")
        self.graph = graph
        self.for_test = for_test

    def to_program(self) -> Program:
        """Return the graph as a program."""
        return snapshot(self.graph.program)


def snapshot(program: Program) -> Program:
    """Return a copy that draws the same random numbers."""
    clone = copy_program(program)
    keep_seed(program, clone)
    return clone
