"""The kinds of program that are attacked: each small, each with fetches that are hard to get right."""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any

import numpy as np

import rowlock.fluid as fluid
from rowlock.executor.gang.delivery import GangChanged
from rowlock.executor.replica.orders import Inventory
from rowlock.strategies.build import GradientScaleStrategy, ReduceStrategy
from tests.contract.nets import OPTIMIZERS
from tests.programs import on_places, own_programs

ROWS, WIDTH = 12, 6

Fetched = list[np.ndarray]
Values = dict[str, np.ndarray]


class Model:
    """A program with its scope, and what is fetched: losses, rows, what the step wrote."""

    def __init__(self, kind: Kind, program_seed: int = 7) -> None:
        self.kind = kind
        self.scope = fluid.Scope()
        with own_programs(program_seed) as (self.main, self.startup):
            self.loss, self.fetches = kind.net()
        self.exe = fluid.Executor(kind.on(1)[0])
        self.start()
        self.program = on_places(
            self.main, kind.on(kind.places), self.loss, build=kind.build, execution=kind.execution
        )

    def start(self) -> None:
        """Draw the parameters, which are the same each time."""
        self.exe.run(self.startup, scope=self.scope)

    def run(self, step: int, program: Any = None) -> Fetched:
        """Run a step (or the ``num_iteration_per_run`` of a call), and return what it fetches."""
        return self._call(self.exe.run, feed(step), program)

    def begin(self, step: int, program: Any = None) -> Any:
        """Begin a step, and change what was fed; the future has what it fetches."""
        fed = feed(step)
        future = self._call(self.exe.run_async, fed, program)
        for array in fed.values():
            array.fill(np.nan)
        return future

    def _call(self, call: Callable[..., Any], fed: Values, program: Any) -> Any:
        return call(program or self.program, fed, self.fetches, scope=self.scope)

    def persistables(self) -> Values:
        """Return every persistable as the user sees it."""
        names = sorted(v.name for v in self.main.list_vars() if v.persistable)
        values = {name: self.scope.find_var(name) for name in names}
        return {name: np.array(v.get_tensor()) for name, v in values.items() if v is not None}

    def copies(self) -> dict[str, Values]:
        """Return the persistables as each replica holds them, less those that one holds alone."""
        run: Any = self.program._parallel
        with contextlib.suppress(GangChanged):  # a gang that shrinks says so
            run.gang.all(Inventory())  # whoever is lost is found now, not between the reads
        names = [n for n in run.values.names if n not in run.values.owners]
        return {
            f"at place {rank}": {n: run.gang.read(run.values.id, n, rank) for n in names}
            for rank in range(run.gang.size)
        }

    @property
    def gang(self) -> Any:
        """The gang that it runs on."""
        run: Any = self.program._parallel
        return run.gang


def feed(step: int) -> Values:
    """Rows that differ by step, and whose mean drifts over the places."""
    draw = np.random.default_rng(step)
    x = draw.standard_normal((ROWS, WIDTH)) + np.linspace(-1, 1, ROWS)[:, None]
    return {"x": x.astype("float32"), "y": draw.random((ROWS, 1), "float32")}


def _data() -> tuple[Any, Any]:
    return fluid.data("x", [None, WIDTH]), fluid.data("y", [None, 1])


def _regression(optimizer: str, drop: float = 0.0, norm: bool = False) -> tuple[Any, list[Any]]:
    x, y = _data()
    hidden = fluid.layers.fc(x, 5, act="tanh", param_attr="w")
    rows = [hidden]
    if norm:
        hidden = fluid.layers.batch_norm(hidden, act="tanh", momentum=0.8)
        rows.append(hidden)
    if drop:
        hidden = fluid.layers.dropout(hidden, drop)
        rows.append(hidden)
    out = fluid.layers.fc(hidden, 1)
    loss = fluid.layers.mean(fluid.layers.square_error_cost(out, y))
    OPTIMIZERS[optimizer]().minimize(loss)
    weight = x.block.var("w")
    after = fluid.layers.mul(x, weight)  # rows of this place, made of what the step wrote
    return loss, [loss, *rows, out, weight, after]


def _two_optimizers() -> tuple[Any, list[Any]]:
    """Like a GAN: the second loss sees what the first optimizer wrote; and steps are counted."""
    x, y = _data()
    hidden = fluid.layers.fc(x, 5, act="tanh", param_attr="generator")
    first = fluid.layers.mean(fluid.layers.square_error_cost(fluid.layers.fc(hidden, 1), y))
    fluid.optimizer.SGD(0.1).minimize(first)
    again = fluid.layers.mul(x, x.block.var("generator"))
    judged = fluid.layers.fc(again, 1, param_attr="judge")
    second = fluid.layers.mean(fluid.layers.square_error_cost(judged, y))
    fluid.optimizer.Adam(0.05).minimize(second)
    counter = fluid.layers.create_global_var([1], 0.0, "float32", persistable=True, name="steps")
    fluid.layers.increment(counter)
    return first, [first, second, again, judged, counter]


def _whole_numbers() -> tuple[Any, list[Any]]:
    """Sums that are exact in any order: the same bits on any number of places."""
    x, _ = _data()
    whole = fluid.layers.round(x)
    start = fluid.ParamAttr("w", initializer=fluid.initializer.Constant(0.25))
    out = fluid.layers.fc(whole, 5, param_attr=start, bias_attr=False)
    loss = fluid.layers.reduce_sum(out)
    fluid.optimizer.SGD(0.5).minimize(loss)
    return loss, [whole, fluid.layers.mul(whole, x.block.var("w"))]


def _weights() -> tuple[Any, list[Any]]:
    """Nothing is fetched that one place alone knows, so GPUs vote without their hosts."""
    loss, (*_, weight, _) = _regression("momentum")
    return loss, [weight]


@dataclass(frozen=True)
class Kind:
    """A kind of program, the strategies it runs under, and on how many places."""

    name: str
    net: Callable[[], tuple[Any, list[Any]]]
    places: int = 3
    build: Mapping[str, Any] = field(default_factory=dict)
    execution: Mapping[str, Any] = field(default_factory=dict)
    in_flight: bool = False
    on: Callable[[int], Any] = fluid.cpu_places


_REDUCE = {"reduce_strategy": ReduceStrategy.Reduce}
_SUM = {"gradient_scale_strategy": GradientScaleStrategy.One}
_SYNC = {"sync_batch_norm": True}
KINDS = [
    Kind("sgd", lambda: _regression("sgd")),
    Kind("momentum, batch norm", lambda: _regression("momentum", norm=True)),
    Kind("adam, dropout", lambda: _regression("adam", drop=0.3)),
    Kind("sync_batch_norm", lambda: _regression("momentum", norm=True), build=_SYNC),
    Kind("Reduce mode", lambda: _regression("sgd"), build=_REDUCE),
    Kind("Reduce mode, state of one", lambda: _regression("adam"), build=_REDUCE),
    Kind("two optimizers", _two_optimizers),
    Kind("4 iterations", lambda: _regression("adam"), execution={"num_iteration_per_run": 4}),
    Kind("steps in flight", lambda: _regression("momentum", norm=True), in_flight=True),
    Kind("weights in flight", _weights, in_flight=True),
    Kind("whole numbers", _whole_numbers, places=4, build=_SUM),
]


def differences(ours: Values, wanted: Values) -> list[str]:
    """Return the names whose values are not the same bits."""
    pairs = {name: (ours.get(name), value) for name, value in wanted.items()}
    return [n for n, (a, b) in pairs.items() if a is None or not same(a, b)]


def same(one: np.ndarray, other: np.ndarray) -> bool:
    """Tell whether two arrays are the same bits."""
    return (
        one.shape == other.shape and one.dtype == other.dtype and one.tobytes() == other.tobytes()
    )
