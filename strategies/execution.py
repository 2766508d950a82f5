"""ExecutionStrategy: how a compiled program is run."""

from __future__ import annotations

from typing import Annotated

from pydantic import BeforeValidator

from .base import Strategy, effect, flag, hint, semantic

Flag = Annotated[bool, BeforeValidator(flag)]


class ExecutionStrategy(Strategy):
    """Switches of the executor.

    ``num_threads`` 0 means: decide when compiling, and write the number here.
    ``num_iteration_per_drop_scope``: temporaries end their life every so many steps (0: never by count), and
    at the end of each step that fetches.
    """

    num_threads: int = hint(0, ge=0)
    num_iteration_per_drop_scope: int = effect(1, ge=0)
    num_iteration_per_run: int = semantic(1, ge=1)
    allow_op_delay: Flag = hint(False)
    use_thread_barrier: Flag = hint(False)
    use_experimental_executor: Flag = hint(True)
    use_cuda: Flag = semantic(False)
