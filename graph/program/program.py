"""Program, which a user's script builds, copies and writes, and the two default programs."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

from ...strategies.errors import InvalidArgument, InvalidType, InvalidValue, require_type
from ...strategies.types import VarType
from .block import ProgramBlocks
from .clone import copy_program, for_test_program, prune, set_test_mode
from .formats.program import describe, parse, serialize
from .formats.text import DETAILS, text


class Program(ProgramBlocks):
    """Blocks of operators over named variables: the computation that a user describes.

    ``random_seed`` (int, 0: drawn once per program) seeds every random op that has no seed of its own. What
    it draws differs by step; ``first_step`` (int, 0) is the number of the first one.
    """

    def __init__(self) -> None:
        super().__init__(_default_seed)

    @staticmethod
    def global_seed(seed: int = 0) -> None:
        """Seed both default programs and every program created from now on."""
        if not isinstance(seed, int) or isinstance(seed, bool):
            raise InvalidValue(f"Program.global_seed must be an int, got {seed!r}.")
        global _default_seed
        _default_seed = seed
        default_main_program().random_seed = seed
        default_startup_program().random_seed = seed

    @property
    def desc(self) -> Program:
        """The program itself, under the name by which ``core.Graph`` and ``serialize_to_string`` know it."""
        return self

    def serialize_to_string(self) -> bytes:
        """Return the program as Paddle writes it (``__model__``, ``.pdmodel``)."""
        return serialize(self)

    @staticmethod
    def parse_from_string(binary_str: bytes) -> Program:
        """Return the program that such bytes hold, also with operators that are not built here.

        Raises:
            InvalidType: another thing than bytes.
            DamagedFile: they hold none.
        """
        require_type(
            binary_str, bytes | bytearray | memoryview, "Program.parse_from_string takes bytes"
        )
        return parse(binary_str, Program())

    def clone(self, for_test: bool = False) -> Program:
        """Return a deep copy; ``for_test`` drops backward and optimizer ops and sets ``is_test``.

        Raises:
            InvalidArgument: ``for_test`` is no bool.
        """
        if not isinstance(for_test, (bool, int)):
            raise InvalidArgument(
                f"Program.clone: for_test must be True or False, got {for_test!r}."
            )
        return for_test_program(self) if for_test else copy_program(self)

    def _inference_optimize(self, prune_read_op: bool = True) -> Program:
        """Return a copy with ``is_test`` set, and without readers; no program has ``read`` ops to prune."""
        copied = copy_program(self)
        copied.readers = []
        set_test_mode(copied)
        return copied

    def _prune(self, targets: Any) -> Program:
        return prune(self, [], targets)

    def _prune_with_input(self, feeded_var_names: list[str], targets: Any) -> Program:
        return prune(self, feeded_var_names, targets)

    def to_string(self, throw_on_error: bool, with_details: bool = False) -> str:
        """Return the program as the text of its message; ``with_details`` adds settings it does not hold.

        Raises:
            InvalidArgument: an argument is no bool.
        """
        for name, value in (("throw_on_error", throw_on_error), ("with_details", with_details)):
            if not isinstance(value, bool):
                raise InvalidArgument(f"{name} must be a bool, got {value!r}.")
        message = describe(self)
        if with_details:
            for block, described in zip(self.blocks, message["blocks"], strict=True):
                for entry in described.get("vars", ()):
                    entry[DETAILS] = block.vars[entry["name"]].details()
        return text("ProgramDesc", message)

    def __str__(self) -> str:
        return "\n".join(block.to_string() for block in self.blocks)

    def __repr__(self) -> str:
        block = self.global_block()
        # A file does not say which variables are parameters, or data: its feed ops name those that are fed.
        lasting = [v for v in self.list_vars() if v.persistable and v.type is VarType.LOD_TENSOR]
        parameters = self.all_parameters() or lasting
        numbers = sum(math.prod(p.shape or ()) for p in parameters)
        data = [v.name for v in block.vars.values() if v.is_data]
        feeds = data or [
            name for op in block.ops if op.type == "feed" for name in op.output_arg_names
        ]
        return (
            f"<Program: {sum(len(b.ops) for b in self.blocks)} ops, {len(parameters)} parameters ({numbers:,} "
            f"numbers), feeds {', '.join(feeds) or 'nothing'}. print() shows all>"
        )

    def _repr_html_(self) -> str | None:
        return None if _page is None else _page(self)


_page: Callable[[Program], str] | None = None


def register_page(page: Callable[[Program], str]) -> None:
    """Have programs shown in notebooks as the HTML that ``page`` returns."""
    global _page
    _page = page


_default_seed = 0
_main_program = Program()
_startup_program = Program()
_outermost = _main_program


def is_outermost(program: Program) -> bool:
    """Tell whether a program is the one that layers are added to outside every ``program_guard``."""
    return program is _outermost


def default_main_program() -> Program:
    """Return the program that layers are added to."""
    return _main_program


def default_startup_program() -> Program:
    """Return the program that initializers are added to."""
    return _startup_program


def switch_main_program(program: Program) -> Program:
    """Make ``program`` the default main program and return the one it replaces."""
    global _main_program
    old, _main_program = _main_program, program
    return old


def switch_startup_program(program: Program) -> Program:
    """Make ``program`` the default startup program and return the one it replaces."""
    global _startup_program
    old, _startup_program = _startup_program, program
    return old


@contextmanager
def program_guard(
    main_program: ProgramBlocks, startup_program: ProgramBlocks | None = None
) -> Iterator[None]:
    """Build into ``main_program`` (and ``startup_program``, if given) inside the block.

    Raises:
        InvalidType: an argument is no Program.
    """
    main = _checked("main_program", main_program)
    startup = None if startup_program is None else _checked("startup_program", startup_program)
    old_main = switch_main_program(main)
    old_startup = None if startup is None else switch_startup_program(startup)
    try:
        yield
    finally:
        switch_main_program(old_main)
        if old_startup is not None:
            switch_startup_program(old_startup)


def _checked(name: str, program: ProgramBlocks) -> Program:
    if not isinstance(program, Program):
        raise InvalidType(f"program_guard: {name} must be a Program, got {type(program).__name__}.")
    return program
