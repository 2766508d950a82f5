"""Choose kernels by what one replica measured for the shapes that a program is fed first.

The choice is part of the program that all replicas get, so they, and those that replace them, compute the same
bits. What was measured once is known from then on, on disk too (``executor/kernels/measure.py``).
"""

from __future__ import annotations

import json
import time
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace

import numpy as np

from ...graph.compile import Compiled
from ...graph.ir.replica_program import NodeRecord, ReplicaProgram
from ...graph.ir.segments import first_segment
from ...graph.ops.registry import Spec
from ...strategies.errors import ShapeError
from ...strategies.types import to_numpy
from ..gang.gang import Gang
from ..host.arena import spec_of
from ..kernels.back_ends import EXACT_VARIANT
from ..kernels.measure import Operand, Question, Timings, fastest
from ..plan.shapes import Shapes
from ..replica.orders import Measure, pack

# For all that is not known already: of a thread on the processor, and of a clock, where that thread has to wait
WITHIN_S, UNTIL_S = 2.0, 10.0


def chosen(
    compiled: Compiled,
    fed: Mapping[str, np.ndarray],
    state: Callable[[str], Spec | None],
    gang: Gang,
) -> Compiled:
    """Return the program with the kernels that are fastest for what is ``fed``, and tell so in its report.

    ``state`` returns the spec of a persistable. Shapes that do not fit the program are not measured: the step
    refuses them.
    """
    if not any(compiled.alternatives):
        return compiled
    program, report = compiled.program, compiled.report
    try:
        specs = _specs(program, fed, state)
    except ShapeError:
        return compiled
    by_question: dict[str, _Choice] = {}
    for k, names in enumerate(compiled.alternatives):
        question = _question(program, program.nodes[k], specs, names) if names else None
        if question is not None and all(n > 0 for shape, *_ in question.operands for n in shape):
            by_question.setdefault(json.dumps(question), _Choice(question)).nodes.append(k)
    if not by_question:
        return compiled
    # Time may not be enough for all: those first that are the largest part of a step for what they take.
    choices = sorted(by_question.values(), key=lambda choice: -choice.share / choice.question.cost)
    began = time.perf_counter()
    timings = _measure(choices, program.math, gang)
    took = time.perf_counter() - began
    nodes = list(program.nodes)
    for choice in choices:
        for k in choice.nodes:
            nodes[k] = replace(nodes[k], kernel=choice.kernel)
    graph = report.graph
    for line in _report_lines(choices, timings, took):
        graph = graph.noted(line)
    report = replace(report, graph=graph, kernels=Counter(node.kernel for node in nodes))
    return replace(compiled, program=replace(program, nodes=tuple(nodes)), report=report)


def _specs(
    program: ReplicaProgram, fed: Mapping[str, np.ndarray], state: Callable[[str], Spec | None]
) -> Sequence[Spec]:
    """Return the specs of a program's values where these arrays are fed."""
    # Behind what users feed stands what the driver fills itself.
    rest = [program.values[i] for i in program.feeds[len(fed) :]]
    arrays = [*fed.values(), *(np.zeros(v.shape, to_numpy(v.dtype)) for v in rest)]
    return Shapes(first_segment(program)).infer(list(map(spec_of, arrays)), state, arrays)


def _measure(choices: Sequence[_Choice], math: str, gang: Gang) -> Timings:
    """Have replica 0 answer the questions while the others are idle; note the answers in ``choices``."""
    order = Measure([choice.question for choice in choices], math, WITHIN_S, UNTIL_S)
    idle = order._replace(questions=[])
    answers = gang.each([pack(idle if rank else order) for rank in range(gang.size)])
    timings = Timings(**answers[0].head)
    for choice, seconds in zip(choices, timings.seconds, strict=True):
        choice.seconds = seconds
    return timings


@dataclass
class _Choice:
    """A question about some nodes (their numbers), and its answer."""

    question: Question
    nodes: list[int] = field(default_factory=list)
    seconds: Mapping[str, float] = field(default_factory=dict)

    @property
    def share(self) -> float:
        """About how much of a step its nodes are, told as multiply-adds."""
        return self.question.work * len(self.nodes)

    @property
    def kernel(self) -> str:
        """The fastest kernel: that of the rule if no other is clearly faster, or if it was not measured."""
        return fastest(self.question.kernels, self.seconds)

    def __str__(self) -> str:
        shapes = ", ".join("x".join(map(str, shape)) for shape, *_ in self.question.operands)
        times = ", ".join(
            f"{name} {1e3 * seconds:.3g} ms"
            for name, seconds in sorted(self.seconds.items(), key=lambda item: item[1])
        )
        return f"{self.kernel} for {len(self.nodes)} {self.question.op} of {shapes} ({times})"


def _report_lines(choices: Sequence[_Choice], timings: Timings, took: float) -> Iterator[str]:
    """Say what was measured, and which kernels that the rule would not have chosen were faster."""
    others = [choice for choice in choices if choice.kernel != choice.question.kernels[0]]
    unknown = sum(not choice.seconds for choice in choices)
    yield (
        f"measured kernels: {timings.measured} of {len(choices)} shapes in {timings.worked:.2f} s of the "
        f"processor (of about {WITHIN_S:g} s) and {timings.compiled:.2f} s to compile loops, {took:.2f} s on "
        f"the clock (of about {UNTIL_S:g} s); {len(choices) - timings.measured - unknown} known before, "
        f"{unknown} left to the rule until the next start; for {len(others)} another kernel than the rule's "
        f"is faster"
    )
    for choice in others:
        yield f"  {choice}"
    exact = sum(len(choice.nodes) for choice in others if choice.kernel == EXACT_VARIANT)
    if exact:
        yield (
            f"cpu_math: {exact} of these stay float32, which was faster: they round no factor, and "
            f"read rounded what lies in bfloat16"
        )


def _question(
    program: ReplicaProgram, node: NodeRecord, specs: Sequence[Spec], kernels: Sequence[str]
) -> Question:
    """Return a node of the program as plain data."""

    def operand(i: int) -> Operand | None:
        value = program.values[i]
        spec = specs[i]
        return (list(spec.shape), int(spec.dtype), value.layout, value.varies) if i >= 0 else None

    inputs, outputs = (
        {slot: [operand(i) for i in positions] for slot, positions in slots.items()}
        for slots in (node.inputs, node.outputs)
    )
    return Question(node.op, node.attrs, inputs, outputs, list(kernels))
