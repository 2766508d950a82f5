"""Small programs for the contract tests, and the three ways to run them."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

import numpy as np

import rowlock.fluid as fluid
from tests.programs import on_places, own_programs

Optimizers = Mapping[str, Callable[..., Any]]
OPTIMIZERS: Optimizers = {
    "sgd": lambda **how: fluid.optimizer.SGD(0.1, **how),
    "momentum": lambda **how: fluid.optimizer.Momentum(0.1, 0.9, **how),
    "adam": lambda **how: fluid.optimizer.Adam(0.01, **how),
}
CLIPS: Mapping[str, Callable[..., Any]] = {
    "none": lambda: None,
    "value": lambda: fluid.clip.GradientClipByValue(0.05),
    "norm": lambda: fluid.clip.GradientClipByNorm(0.1),
    "global": lambda: fluid.clip.GradientClipByGlobalNorm(0.1),
}


class Net:
    """x [N, 4] -> fc 3 -> fc 1, squared error against y [N, 1], in programs and a scope of its own."""

    def __init__(
        self,
        optimizer: Callable[..., Any] | None = OPTIMIZERS["sgd"],
        clip: Callable[..., Any] = CLIPS["none"],
        drop: float = 0.0,
        decay: float = 0.0,
        layers: int = 1,
    ) -> None:
        self.scope = fluid.Scope()
        with own_programs(5) as (self.main, self.startup):
            x = fluid.data("x", [None, 4])
            y = fluid.data("y", [None, 1])
            hidden = x
            for _ in range(layers):
                hidden = fluid.layers.fc(hidden, 3, act="tanh")
            self.hidden = fluid.layers.dropout(hidden, drop) if drop else hidden
            self.prediction = fluid.layers.fc(self.hidden, 1)
            cost = fluid.layers.square_error_cost(self.prediction, y)
            self.loss = fluid.layers.mean(cost)
            self.test = self.main.clone(for_test=True)
            if optimizer is not None:
                how = {"regularization": fluid.regularizer.L2Decay(decay)} if decay else {}
                optimizer(grad_clip=clip(), **how).minimize(self.loss)
        self.exe = fluid.Executor(fluid.CPUPlace())
        self.run(self.startup)

    def run(self, program: Any, *args: Any, **settings: Any) -> list[Any]:
        return self.exe.run(program, *args, scope=self.scope, **settings)

    def compiled(
        self,
        places: int,
        program: fluid.Program | None = None,
        build: Mapping[str, Any] | None = None,
        execution: Mapping[str, Any] | None = None,
        first: int = 0,
        **settings: Any,
    ) -> fluid.CompiledProgram:
        """The program on several places; strategies are given by the fields that differ.

        ``first``: the first of them, where places are GPUs.
        """
        program = self.main if program is None else program
        trains = program is self.main
        return on_places(
            program,
            fluid.cpu_places(first + places)[first:],
            self.loss.name if trains else None,
            build=build or {},
            execution=execution or {},
            **settings,
        )

    def value(self, name: str) -> np.ndarray:
        return np.array(self.scope.find_var(name).get_tensor())

    def parameters(self) -> dict[str, np.ndarray]:
        return {p.name: self.value(p.name) for p in self.main.all_parameters()}


def feed(rows: int, step: int = 0) -> dict[str, np.ndarray]:
    """Rows that differ by step."""
    draw = np.random.default_rng(100 * step + rows)
    x = draw.standard_normal((rows, 4)).astype("float32")
    return {"x": x, "y": (x.sum(1, keepdims=True) * 0.5 + 1).astype("float32")}


def assert_close(
    arrays: Mapping[str, np.ndarray], wanted: Mapping[str, np.ndarray], tolerance: float = 1e-6
) -> None:
    assert set(arrays) == set(wanted)
    for name in wanted:
        np.testing.assert_allclose(
            arrays[name], wanted[name], rtol=tolerance, atol=tolerance, err_msg=name
        )


def device_copies(program: fluid.CompiledProgram, name: str) -> list[np.ndarray]:
    """Return a persistable as each replica holds it."""
    run = program._parallel
    return [run.gang.read(run.values.id, name, rank) for rank in range(len(run.places))]
