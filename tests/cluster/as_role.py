"""A role as users' scripts start it: ``python -m tests.cluster.as_role``, told by the environment who it is.

SETTINGS: fields of ClusterConfig as JSON. STEPS: of the training. PAUSES: steps before which a trainer waits
for a line. Lines begin with what they tell: serving, paused, initial, result, error, done.
"""

from __future__ import annotations

import json
import os
import sys
from typing import Any

import numpy as np

import rowlock
from rowlock import fluid
from rowlock.strategies.errors import EnforceNotMet

ROWS = 6


def net() -> Any:
    x, y = fluid.data("x", [None, 4]), fluid.data("y", [None, 1])
    hidden = fluid.layers.fc(x, 8, act="tanh")
    loss = fluid.layers.mean(fluid.layers.square_error_cost(fluid.layers.fc(hidden, 1), y))
    fluid.optimizer.Momentum(0.1, 0.9).minimize(loss)
    return loss


def batch(trainer: int, step: int) -> dict[str, np.ndarray]:
    draw = np.random.default_rng([trainer, step])
    return {
        "x": draw.standard_normal((ROWS, 4)).astype("f4"),
        "y": draw.random((ROWS, 1)).astype("f4"),
    }


def told(what: str, value: Any = "") -> None:
    print(f"{what} {json.dumps(value)}\n", end="", flush=True)


def serve(transpiler: Any, exe: Any) -> None:
    endpoint = f"{os.environ['POD_IP']}:{os.environ['PADDLE_PORT']}"
    program, startup = transpiler.get_pserver_programs(endpoint)
    exe.run(startup)
    told("serving", endpoint)
    exe.run(program)


def train(transpiler: Any, exe: Any, number: int, loss: Any) -> None:
    program = transpiler.get_trainer_program(wait_port=False)
    exe.run(fluid.default_startup_program())
    told("initial", parameters(program))
    (session,) = exe._trainer_runs.sessions
    pauses = json.loads(os.environ.get("PAUSES", "[]"))
    for step in range(session.number, int(os.environ["STEPS"])):  # one that comes again goes on
        if step in pauses:
            told("paused", step)
            sys.stdin.readline()
        exe.run(program, feed=batch(number, step), fetch_list=[loss])
    told("result", parameters(program))
    exe.close()


def parameters(program: Any) -> dict[str, Any]:
    scope = fluid.global_scope()
    return {
        p.name: np.array(scope.find_var(p.name).get_tensor()).tolist()
        for p in program.all_parameters()
    }


def main() -> None:
    rowlock.configure(launcher="ray", **json.loads(os.environ.get("SETTINGS", "{}")))
    number = int(os.environ.get("PADDLE_TRAINER_ID", "0"))
    fluid.default_main_program().random_seed = fluid.default_startup_program().random_seed = 7
    loss = net()
    transpiler, exe = fluid.DistributeTranspiler(), fluid.Executor()
    transpiler.transpile(
        number,
        pservers=os.environ["PADDLE_PSERVERS_IP_PORT_LIST"],
        trainers=int(os.environ["PADDLE_TRAINERS_NUM"]),
    )
    try:
        if os.environ["PADDLE_TRAINING_ROLE"] == "PSERVER":
            serve(transpiler, exe)
        else:
            train(transpiler, exe, number, loss)
    except EnforceNotMet as error:
        told("error", f"{type(error).__name__}: {error}")
        sys.exit(1)
    told("done")


if __name__ == "__main__":
    main()
