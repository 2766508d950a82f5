"""Run by test_trainers.py, a process for each trainer: trains with the others, and tells of it by lines."""

from __future__ import annotations

import json
import os
import sys
import time
from typing import Any

import ray

import rowlock
import rowlock.fluid as fluid
from rowlock.strategies.errors import RowlockError
from tests.contract.nets import OPTIMIZERS, Net, feed
from tests.contract.trainers import part, trained, wide, words, words_fed

STEPS = 20
ROWS = 12
COUNTED = 5
ENDLESS_S = 120.0
ACTORS_S = 180.0  # in which a busy host starts them
HOST = "ROWLOCK_TEST_HOST"  # the address of this host, where hosts share the folder in which Ray notes it


def say(word: str, what: Any = None) -> None:
    print(word, json.dumps(what), flush=True)


class Trainer:
    """One trainer's net and program, and what makes a batch of so many rows for a step."""

    def __init__(
        self, trainer: int, ends: list[str], places: int, net: Net, batch: Any = feed
    ) -> None:
        self.trainer, self.ends, self.net, self._batch = trainer, ends, net, batch
        self.program = trained(self.net, trainer, ends, places)

    def step(self, number: int, count: int = ROWS) -> None:
        rows = part(self._batch(count, number % STEPS), self.trainer, len(self.ends))
        self.net.run(self.program, rows, [self.net.loss])

    def tell_where(self) -> None:
        run = self.program._parallel
        assert run is not None
        say("where", [*run.gang.delivery.where, {"pid": os.getpid()}])

    def tell_values(self) -> None:
        say("values", {name: v.tolist() for name, v in self.net.parameters().items()})


def training(trainer: Trainer) -> None:
    """Train some steps, and tell the parameters."""
    for number in range(STEPS):
        trainer.step(number)
    trainer.tell_where()
    trainer.tell_values()


def endless(trainer: Trainer) -> None:
    """Train until something breaks, tell what; once told to, train on with those who come then."""
    trainer.step(0)
    trainer.tell_where()
    end = time.monotonic() + ENDLESS_S
    try:
        while time.monotonic() < end:
            trainer.step(0)
        say("error", f"nothing broke in {ENDLESS_S:g} s")
    except RowlockError as error:
        say("error", f"{type(error).__name__}: {error}")
    sys.stdin.readline()
    for number in range(3):
        trainer.step(number)
    trainer.tell_values()


def joining(trainer: Trainer) -> None:
    """Train with those that were here before, from their values."""
    for number in range(3):
        trainer.step(number)
    trainer.tell_values()


def once(trainer: Trainer) -> None:
    """Try a step."""
    try:
        trainer.step(0)
    except RowlockError as error:
        say("error", f"{type(error).__name__}: {error}")


def counted(trainer: Trainer) -> None:
    """Train some steps each time one is told to."""
    trainer.step(0, 4 * len(trainer.ends))
    say("ready")
    while sys.stdin.readline().strip():
        for number in range(COUNTED):
            trainer.step(number, 4 * len(trainer.ends))
        say("counted")


SCENARIOS = {
    "counted": counted,
    "training": training,
    "endless": endless,
    "joining": joining,
    "once": once,
}


def main() -> None:
    scenario, trainer, ends, places, settings = json.loads(sys.argv[1])
    if HOST in os.environ:
        ray.init(
            address=os.environ["RAY_ADDRESS"],
            _node_ip_address=os.environ[HOST],
            logging_level="ERROR",
            log_to_driver=False,
        )
    rows_on_gpus = settings.pop("rows_on_gpus", False)
    with rowlock.cluster(**{"launcher": "ray", "start_deadline_s": ACTORS_S, **settings}):
        if rows_on_gpus:
            net = words("momentum")
            fluid.cpu_places = lambda count: fluid.cuda_places(range(count))  # type: ignore[assignment]
            net.exe = fluid.Executor(fluid.CUDAPlace(trainer * places))
            SCENARIOS[scenario](Trainer(trainer, ends, places, net, words_fed))
        else:
            net = wide() if scenario == "counted" else Net(OPTIMIZERS["adam"])
            SCENARIOS[scenario](Trainer(trainer, ends, places, net))
    say("done")


if __name__ == "__main__":
    main()
