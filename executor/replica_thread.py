"""A replica that runs on a thread of its own."""

from __future__ import annotations

import threading
import time
from queue import Empty, SimpleQueue

from .message import Message
from .replica import Replica

IDLE = Message("ok", {})  # answers what was no question


class ReplicaThread(threading.Thread):
    """Runs one replica beside the driver's thread. Numbers pair answers with questions."""

    def __init__(self, replica: Replica) -> None:
        super().__init__(name=f"rowlock-replica-{replica.rank}", daemon=True)
        self.replica = replica
        self.finished = -1
        self.asked: SimpleQueue[tuple[int, Message | None] | None] = SimpleQueue()
        self.answers: SimpleQueue[tuple[int, Message]] = SimpleQueue()
        self.start()

    def wait(self, number: int, until: float) -> Message | None:
        """Return the answer to question ``number`` (those before it were given up); None if it is late."""
        while True:
            try:
                answered, answer = self.answers.get(timeout=max(until - time.monotonic(), 0.001))
            except Empty:
                return None
            if answered == number:
                return answer

    def run(self) -> None:
        while (asked := self.asked.get()) is not None:
            number, message = asked
            answer = IDLE if message is None else self.replica.handle(message)
            self.answers.put((number, answer))
            self.finished = number
