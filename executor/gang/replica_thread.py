"""ReplicaThread: run one replica beside the driver's thread."""

from __future__ import annotations

import threading
from queue import Empty, SimpleQueue

from ..host.deadline import Deadline
from ..host.interrupts import interruptible
from ..replica.message import Message
from ..replica.orders import OK
from ..replica.replica import Replica

IDLE = OK  # answers what was no question
Asked = tuple[int, Message | None, dict[int, Message]]


class ReplicaThread(threading.Thread):
    """Runs one replica beside the driver's thread.

    It is asked with a number, a message (None: nothing, to find out that all before was answered) and where to
    put the answer. Numbers grow: a question that comes again was answered.
    """

    def __init__(self, replica: Replica) -> None:
        super().__init__(name=f"rowlock-replica-{replica.rank}", daemon=True)
        self.replica = replica
        self.asked: SimpleQueue[Asked | None] = SimpleQueue()
        self._bell: SimpleQueue[None] = SimpleQueue()
        self._last = self._finished = -1
        with interruptible:
            self.start()

    def ask(self, number: int, message: Message | None, answers: dict[int, Message]) -> None:
        """Put a question behind those that were asked before."""
        self._last = max(self._last, number)
        self.asked.put((number, message, answers))

    @property
    def idle(self) -> bool:
        """Whether everything that was asked is answered."""
        return self._finished >= self._last

    def wait(self, number: int, answers: dict[int, Message], deadline: Deadline) -> bool:
        """Return when question ``number`` is answered; False if it is late.

        The answer is there before the bell rings, so an interrupt may swallow a ring but no answer.
        """
        rank = self.replica.rank
        while rank not in answers:
            try:
                self._bell.get(timeout=deadline.slice_s)
            except Empty:
                if deadline.over and rank not in answers:
                    return False
        while not self._bell.empty():  # rings of those that were answered when they were asked for
            self._bell.get()
        return True

    def run(self) -> None:
        while (asked := self.asked.get()) is not None:
            number, message, answers = asked
            if number > self._finished:
                answers[self.replica.rank] = (
                    IDLE if message is None else self.replica.handle(message)
                )
                self._finished = number
                self._bell.put(None)
            del asked, message, answers  # not kept alive until the next question
