"""What a program that has run on replicas can tell: times, what compiling did, what it holds."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

from ...graph.report.report import CompileReport
from ..device.place import CUDAPlace
from ..plan.run import Event
from ..plan.traced import TracedStep
from .timeline import chrome_trace, named, offsets, write

if TYPE_CHECKING:
    from .parallel import ParallelRun


def temporaries(run: ParallelRun) -> tuple[int, int]:
    """Return how many temporaries are alive on all replicas, and their bytes."""
    answers = [answer for answers in run.tell("temporaries") for answer in answers]
    return sum(a.head["count"] for a in answers), sum(a.head["bytes"] for a in answers)


def executed(run: ParallelRun) -> tuple[list[list[Event]], list[int]]:
    """Return, per place, the last traced step's events, and how many signals its threads exchange."""
    if run.last is None:
        return [], []
    answers = run.gang.all("trace", id=run.last.number, on=run.tracing)
    kept = [a.head["steps"] for a in answers]
    events = [list(TracedStep.from_plain(own[-1]).events) if own else [] for own in kept]
    return events, [a.head["signals"] for a in answers]


def timeline(run: ParallelRun, path: str) -> None:
    """Write the last traced steps as a Chrome trace."""
    steps: list[list[TracedStep]] = [[] for _ in run.places]
    for answers in run.tell("trace", on=run.tracing):
        for own, answer in zip(steps, answers, strict=True):
            own += [TracedStep.from_plain(data) for data in answer.head["steps"]]
    where = getattr(run.gang.delivery, "where", [{}] * len(steps))
    names = [named(rank, place) for rank, place in enumerate(where)]
    write(path, chrome_trace(list(run.spans.kept), steps, offsets(run.gang), names))


def explain(run: ParallelRun) -> CompileReport | None:
    """Return what compiling did, what the last shapes take of a place's memory, and where graphs are split."""
    known = [v for v in (run.last, *run.versions.values()) if v is not None and v.specs]
    if run.report is None or not known or known[0].specs is None:
        return run.report
    memory = known[0].budget.explain(known[0].specs)
    graphs: list[str] = []
    if isinstance(run.places[0], CUDAPlace) and not run.gang.delivery.broken:
        graphs = run.gang.all("graphs", id=known[0].number)[0].head["graphs"]
    return replace(run.report, memory=memory, graphs=tuple(graphs))
