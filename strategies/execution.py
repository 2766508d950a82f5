"""ExecutionStrategy: how a compiled program is run."""

from __future__ import annotations

from typing import Annotated

from pydantic import BeforeValidator

from .base import Strategy, effect, flag, hint, semantic

Flag = Annotated[bool, BeforeValidator(flag)]


class ExecutionStrategy(Strategy):
    """Switches of the executor.

    num_threads: instructions that a replica may run at once; 1: strictly one after another. 0: compiling sets
        it to four times the number of places, as Paddle's documents say, and each replica uses as many as its
        share of the host's cores allows.
    num_iteration_per_drop_scope: temporaries end their life every so many steps (0: never by count), and at
        the end of each step that fetches.
    num_iteration_per_run: steps in one call, on the same feed or on as many batches of a reader; the values
        fetched are the last step's. 0 counts as 1.
    allow_op_delay: collectives may wait until something reads their result.
    use_thread_barrier: at the end of each step every place waits for the others.
    """

    num_threads: int = effect(0, ge=0)
    num_iteration_per_drop_scope: int = effect(1, ge=0)
    num_iteration_per_run: int = effect(1, ge=0)
    allow_op_delay: Flag = effect(False)
    use_thread_barrier: Flag = effect(False)
    use_experimental_executor: Flag = hint(True)
    use_cuda: Flag = semantic(False)

    _decided_threads: int = 0

    def resolve_num_threads(self, places: int) -> bool:
        """Write the documented default into ``num_threads`` where the user left it open; tell if it is that."""
        if self.num_threads == 0:
            self.num_threads = self._decided_threads = 4 * places
        return self.num_threads == self._decided_threads
