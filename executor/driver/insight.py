"""Report about a program that has run: what compiling did, traced times, live temporaries."""

from __future__ import annotations

from dataclasses import replace
from functools import partial
from typing import TYPE_CHECKING

from ...graph.report.report import CompileReport
from ..device.place import CUDAPlace
from ..plan.run import Event
from ..plan.traced import TracedStep
from ..replica.orders import Alive, Graphs, GraphTexts, StepTraces, Temporaries, Trace
from .timeline import chrome_trace, named, offsets, write

if TYPE_CHECKING:
    from .parallel import ParallelRun


def temporaries(run: ParallelRun) -> tuple[int, int]:
    """Return how many temporaries are alive on all replicas, and their bytes."""
    alive = [Alive(**a.head) for answers in run.tell(Temporaries) for a in answers]
    return sum(a.temporaries for a in alive), sum(a.nbytes for a in alive)


def executed(run: ParallelRun) -> tuple[list[list[Event]], list[int]]:
    """Return, per place, the last traced step's events, and how many signals its threads exchange."""
    if run.last is None:
        return [], []
    order = partial(Trace, on=run.tracing)
    traced = [StepTraces(**a.head) for answers in run.tell(order, [run.last]) for a in answers]
    events = [list(TracedStep.from_plain(t.steps[-1]).events) if t.steps else [] for t in traced]
    return events, [t.signals for t in traced]


def timeline(run: ParallelRun, path: str) -> None:
    """Write the last traced steps as a Chrome trace."""
    steps: list[list[TracedStep]] = [[] for _ in run.places]
    for answers in run.tell(partial(Trace, on=run.tracing)):
        for own, answer in zip(steps, answers, strict=True):
            own += [TracedStep.from_plain(data) for data in StepTraces(**answer.head).steps]
    names = [named(rank, place) for rank, place in enumerate(run.gang.delivery.where)]
    write(path, chrome_trace(list(run.spans.recent), steps, offsets(run.gang), names))


def explain(run: ParallelRun) -> CompileReport | None:
    """Return what compiling did, what the last shapes take of a place's memory, and where graphs are split."""
    known = [v for v in (run.last, *run.variants.values()) if v is not None and v.specs]
    if run.report is None or not known or known[0].specs is None:
        return run.report
    memory = known[0].budget.explain(known[0].specs)
    graphs: list[str] = []
    if isinstance(run.places[0], CUDAPlace):
        for answers in run.tell(Graphs, known[:1]):
            graphs += GraphTexts(**answers[0].head).graphs
    return replace(run.report, memory=memory, graphs=tuple(graphs))
