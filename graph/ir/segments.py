"""Where a program is cut: at loops and at arrays of tensors, and where a shape depends on what a step computes.

Behind a cut the elements lie on the host, the shape is inferred from them, and the rest is bound. What follows
from feeds by itself needs no cut: it is computed on the host before (``known_values.py``). A segment has all
values of the program, some of its nodes, and is fed what parts before it computed.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator, Sequence
from dataclasses import replace

from ...strategies.errors import Unsupported
from ..ops.collective import ALL_REDUCE, COLLECTIVES, RING_OPS
from ..ops.host_call import HOST_CALL
from .graph import EVERYWHERE, FEED, STATE
from .known_values import reads_elements, unknown
from .replica_program import NodeRecord, ReplicaProgram

Part = ReplicaProgram | NodeRecord  # a segment, or a call on the host


def first_segment(program: ReplicaProgram) -> ReplicaProgram:
    """Return the segment with which a step begins."""
    first = cut(program)[0]
    assert isinstance(first, ReplicaProgram)
    return first


def cut(program: ReplicaProgram) -> tuple[Part, ...]:
    """Return the parts of a program, in order; of copies of a program all ranks have the same.

    The first and the last are segments; the last has the program's fetches, and all collectives but those on
    which a cut depends.

    Raises:
        Unsupported: a cut depends on what one rank alone has.
    """
    cuts = list(_cuts(program))
    if len(cuts) == 1 and not _calls(program.nodes):
        return (program,)
    if not cuts or _calls([program.nodes[k] for k in cuts[0]]):
        cuts.insert(0, [])
    if _calls([program.nodes[k] for k in cuts[-1]]):
        cuts.append([])
    return tuple(_parts(program, cuts, True))


def cut_block(program: ReplicaProgram) -> tuple[Part, ...]:
    """Return the parts of the block of a loop, in order; the last segment fetches persistables."""
    cuts = list(_cuts(program))
    states = any(program.values[i].kind == STATE for i in program.fetches)
    return tuple(_parts(program, [*cuts, []] if states else cuts, False))


def part_numbers(program: ReplicaProgram) -> dict[int, int]:
    """Return, by the number of a node, that of the part that it is in."""
    return {k: number for number, numbers in enumerate(_cuts(program)) for k in numbers}


def _parts(program: ReplicaProgram, cuts: Sequence[list[int]], whole: bool) -> Iterator[Part]:
    """Yield the parts of these nodes; ``whole``: the first is fed all feeds, the last fetches all fetches."""
    done: set[int] = set()
    for number, numbers in enumerate(cuts):
        nodes = [program.nodes[k] for k in numbers]
        if _calls(nodes):
            yield from nodes
        else:
            first, last = not number, number == len(cuts) - 1
            segment = _segment(program, numbers, done, whole and first, whole and last)
            if not whole and last:
                states = (i for i in program.fetches if program.values[i].kind == STATE)
                segment = replace(segment, fetches=(*segment.fetches, *states))
            yield segment
        done.update(numbers)


def _calls(nodes: Sequence[NodeRecord]) -> bool:
    return any(node.op == HOST_CALL for node in nodes)


def _cuts(program: ReplicaProgram) -> Iterator[list[int]]:
    """Yield the numbers of the nodes of each part: as many as can run, in the order of the program.

    Nodes that wait for all cuts come last, together in one part. Writes to arrays wait until no other node can
    run, so that a round of a loop has no more cuts than it needs.
    """
    cuts = {k for k in range(len(program.nodes)) if _may_cut(program, k)}
    if program.nodes and not cuts:
        yield list(range(len(program.nodes)))
        return
    waits, late = _waits(program, cuts), set[int]()
    for k, before in enumerate(waits):
        if before >= cuts or before & late:
            late.add(k)
    pending, done = sorted(range(len(waits)), key=lambda k: (k in late, k)), set[int]()
    while pending:
        ready = [k for k in pending if program.nodes[k].op == HOST_CALL and waits[k] <= done]
        prompt = [k for k in ready if program.nodes[k].attrs["function"] != "write_to_array"]
        part = prompt or _segment_nodes(program, pending, waits, done) or ready
        if part[0] in ready:
            yield from ([k] for k in part)
        else:
            yield part
        done.update(part)
        pending = [k for k in pending if k not in done]


def _segment_nodes(
    program: ReplicaProgram, pending: Sequence[int], waits: Sequence[set[int]], done: set[int]
) -> list[int]:
    """Return the numbers of the nodes that one plan can run next."""
    numbers: list[int] = []
    inside = set(done)
    for k in pending:
        node = program.nodes[k]
        if node.op == HOST_CALL or not waits[k] <= inside:
            continue
        before = [program.nodes[i] for i in numbers] if reads_elements(node) else []
        if not unknown(before, node, program.values):
            numbers.append(k)
            inside.add(k)
    return numbers


def _waits(program: ReplicaProgram, cuts: set[int]) -> list[set[int]]:
    """Return, by node, the numbers of those that must have run before.

    What changes persistables, and collectives on which no cut depends, wait for all cuts: a step that fails
    there changes nothing. Those of trainers, whose programs may differ, keep their order.

    Raises:
        Unsupported: a cut depends on what one rank alone has.
    """
    writer: dict[int, int] = {}
    ring: set[int] = set()  # the last collective of trainers
    users: dict[str, set[int]] = {}  # of a persistable, since it was written
    waits, changes = list[set[int]](), set[int]()
    for k, node in enumerate(program.nodes):
        before = {writer[i] for slot in node.inputs.values() for i in slot if i in writer}
        for i in (i for slot in node.outputs.values() for i in slot if i >= 0):
            writer[i] = k
            if program.values[i].kind == STATE:
                before |= users.pop(program.values[i].name, set())
                changes.add(k)
        for i in node.touches():
            if program.values[i].kind == STATE:
                users.setdefault(program.values[i].name, set()).add(k)
        if node.op in RING_OPS:
            before, ring = before | ring, {k}
        waits.append(before - {k})
    needed = set(cuts)
    for k in range(len(waits))[::-1]:
        needed |= waits[k] if k in needed else set()
    for k, node in enumerate(program.nodes):
        if k in needed:
            _check_everywhere(program, node, waits, cuts)
        elif node.op in COLLECTIVES or k in changes:
            waits[k] |= cuts
    return waits


def _may_cut(program: ReplicaProgram, number: int) -> bool:
    node = program.nodes[number]
    before = program.nodes[:number] if reads_elements(node) else ()
    return node.op == HOST_CALL or unknown(before, node, program.values)


def _check_everywhere(
    program: ReplicaProgram, node: NodeRecord, waits: Sequence[set[int]], cuts: Collection[int]
) -> None:
    """Refuse a node on which a cut depends and whose results not all ranks have.

    Raises:
        Unsupported: it names the first such cut.
    """
    alike = node.op not in COLLECTIVES or node.op == ALL_REDUCE or node.op in RING_OPS
    if alike and node.at == EVERYWHERE:
        return
    behind = {next(k for k, other in enumerate(program.nodes) if other is node)}
    for k, before in enumerate(waits):
        if not before.isdisjoint(behind):
            behind.add(k)
    cut_node = program.nodes[min(behind.intersection(cuts))]
    is_call = cut_node.op == HOST_CALL
    raise Unsupported(
        f"{cut_node.attrs['function'] if is_call else cut_node.op}: what it computes depends on a gradient "
        f"that its owner alone has behind {node.op} (Reduce mode, or rows of an is_sparse table): put it "
        f"before the gradients, or use AllReduce and is_sparse=False. Built at {cut_node.where}."
    )


def _segment(
    program: ReplicaProgram, numbers: Sequence[int], done: Collection[int], first: bool, last: bool
) -> ReplicaProgram:
    """Return the segment of some nodes, behind those that are ``done``."""
    own = [program.nodes[k] for k in numbers]
    behind = {*done, *numbers}
    rest = [node for k, node in enumerate(program.nodes) if k not in behind]
    later = {i for node in rest for i in node.touches()} | {*program.fetches}
    before = _written(program, [program.nodes[k] for k in done])
    here = _written(program, own)
    used = {i for node in own for i in node.touches()}
    used |= set(program.fetches) if last else set()
    fed = dict.fromkeys(i for i in program.feeds if i in used or first)
    crossing = sorted(i for i in before & used - {*program.feeds})
    values = list(program.values)
    for i in crossing:
        values[i] = replace(values[i], kind=FEED)
    return replace(
        program,
        values=tuple(values),
        nodes=tuple(own),
        feeds=(*fed, *crossing),
        fetches=program.fetches if last else tuple(sorted(here & later)),
        place_states=program.place_states if last else (),
        buckets=tuple(
            tuple(i for i in node.inputs.get("X", ()) if i >= 0)
            for node in own
            if node.op in COLLECTIVES
        ),
        checked=tuple(numbers.index(k) for k in program.checked if k in numbers),
    )


def _written(program: ReplicaProgram, nodes: Sequence[NodeRecord]) -> set[int]:
    """Return the positions of the values, persistables aside, that nodes compute."""
    written = {i for node in nodes for positions in node.outputs.values() for i in positions}
    return {i for i in written if i >= 0 and program.values[i].kind != STATE}
