"""Plans where temporaries lie, from the nodes between which each is needed.

There is one arena per replica, and one on the host if ops of a GPU's replica run there.

A *storage* is the memory of one value, or of several. A result written over an operand that is not needed any
more, and a view of an operand in another shape, lie in the operand's storage. Parts that are cut from a value,
or joined to one, lie within its storage unless memory would be needed for much longer.
Storages that are never needed at the same time may overlap. Offsets are chosen largest first, each into the
smallest gap that fits (greedy by size: Pisarchyk and Lee, arXiv 2001.03288).
"""

from __future__ import annotations

from bisect import insort
from collections.abc import Callable, Collection, Hashable, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property, lru_cache
from math import prod
from typing import NamedTuple

from ...strategies.bounded_dict import BoundedDict
from ...strategies.types import FLOATS, INTEGERS, VarType, to_numpy
from ..ir.capabilities import ROUNDED, ROUNDED_LAST
from ..ir.graph import FEED, STATE
from ..ir.replica_program import NodeRecord, ReplicaProgram
from ..ops.collective import BROADCAST, BUCKETED, COLLECTIVES
from ..ops.registry import OPS, Inference, Spec

ALIGNMENT = 64  # bytes; a cache line, and what vector units like best
# Bytes; a whole number of a GPU's transactions, for which its libraries are tuned
GPU_ALIGNMENT = 256
_BEFORE = -1  # feeds are there before the first node


class MemoryOptions(NamedTuple):
    """Choices of the strategy: ``reuse`` of memory, and results in the place of operands (``in_place``).

    Values begin on multiples of ``alignment`` bytes.
    """

    reuse: bool = True
    in_place: bool = True
    alignment: int = ALIGNMENT


ALL_MEMORY_OPTIONS = MemoryOptions()


class Pair(NamedTuple):
    """A result that may lie where an operand of its node does: unchanged (``view``), or written over it.

    ``cut``: the operand of a view may have more elements behind those of the result. ``twin``: the source of
    a view is another result, and of the same shape.
    """

    node: int
    result: int
    source: int
    view: bool
    cut: bool = False
    twin: bool = False


class Parts(NamedTuple):
    """Values that may lie within another (``whole``) of their node: each with where it begins, in elements.

    ``joined``: they are its operands, and the whole its result; else it is the other way round.
    """

    node: int
    whole: int
    begins: tuple[tuple[int, int], ...]
    joined: bool


_APART = ("cudnn",)  # libraries that take it that no result lies where an operand does
_ITEM_SIZES = {t: to_numpy(t).itemsize for t in (VarType.BOOL, *INTEGERS, *FLOATS)}


_SPECS_KNOWN = 1 << 12


@lru_cache(_SPECS_KNOWN)
def nbytes(spec: Spec) -> int:
    """Return the bytes of an array."""
    return prod(spec.shape) * _ITEM_SIZES[spec.dtype]


def aligned(size: int, alignment: int = ALIGNMENT) -> int:
    """Return a size rounded up, so that what lies behind it begins well."""
    return -(-size // alignment) * alignment


# An arena may be larger by this factor and these bytes for values to keep their places.
_STEADY, _LITTLE = 1 + 1 / 16, 1 << 16
_LONGER = 1 + 1 / 4  # how many more bytes times nodes a whole may last for its parts to lie in it
# Of sizes from each power of two to the next; an arena has room for the largest of a class.
_CLASSES = 8
_SHARINGS = 16  # known at a time, where shapes tell which results lie in the place of operands


class _Layout(NamedTuple):
    """Offsets at which storages have ``room`` for more bytes than they need for some shapes."""

    room: Mapping[int, int]
    offsets: dict[int, int]
    size: int


class Usage:
    """Lifetimes of values, and pairs that may share memory: all that does not depend on shapes.

    ``nodes`` are those of the program that run on this rank, in order. ``grouped``: gradients lie in the
    buckets of a collective group, outside the arena. ``fed``: so do feeds. What is fetched, and what is made
    before the last collective and read behind it, stays to the end of the step: the writes that follow the
    vote may have to be made again. ``fixed`` are the values in the arena whose size no feed changes,
    ``rounded`` those that lie in bfloat16. ``room`` has the most bytes for which a storage was placed, and
    ``apart`` are the values of uneven steps that did not fit into one memory once, by node: they never lie
    together again, so that all else lies where it does for other shapes.
    """

    def __init__(
        self,
        program: ReplicaProgram,
        nodes: Sequence[NodeRecord],
        *,
        grouped: bool,
        fed: bool = False,
    ) -> None:
        self.program, self.nodes = program, nodes
        self.end = len(nodes)
        feeds = program.feeds
        self.outside = _outside(program, grouped)
        if fed:
            self.outside.update(feeds)
        self.first: dict[int, int] = {}
        self.last: dict[int, int] = {}
        for i in feeds:
            self._note(i, _BEFORE)
        for k, node in enumerate(nodes):
            for i in (*node.reads(), *node.writes()):
                self._note(i, k)
        declared = {i: program.values[i].spec.shape for i in self.first}
        self.fixed = {i for i, shape in declared.items() if -1 not in shape}
        self.room: dict[int, int] = {}
        self.apart: set[tuple[int, int]] = set()
        self._sharing: BoundedDict[tuple[Hashable, ...], Sharing] = BoundedDict(_SHARINGS)
        self._placing = [(k, node) for k, node in enumerate(nodes) if OPS[node.op].places]
        self._parting = [(k, node) for k, node in enumerate(nodes) if self._parts_stay(node)]
        self.hosted = {i for i in self.first if program.values[i].host}
        layouts = (ROUNDED, ROUNDED_LAST)
        self.rounded = [i for i in self.first if program.values[i].layout in layouts]
        self._keep_to_the_end(grouped)
        self.pairs = [p for k, n in enumerate(nodes) for p in self._pairs(k, n, grouped)]

    def _note(self, position: int, node: int) -> None:
        if position not in self.outside:
            fed = self.program.values[position].kind == FEED
            self.first.setdefault(position, _BEFORE if fed else node)
            self.last[position] = node

    def _keep_to_the_end(self, grouped: bool) -> None:
        for i in self.program.fetches:
            if i in self.last:
                self.last[i] = self.end
        meetings = [k for k, node in enumerate(self.nodes) if node.op in COLLECTIVES]
        if grouped and meetings:
            vote = meetings[-1]
            for i, last in self.last.items():
                if self.first[i] <= vote < last:
                    self.last[i] = self.end

    def stored(self, specs: Sequence[Spec]) -> Sequence[Spec]:
        """Return the specs of values as they lie in memory."""
        if not self.rounded:
            return specs
        stored = list(specs)
        for i in self.rounded:
            stored[i] = specs[i]._replace(dtype=VarType.BF16)
        return stored

    def sharing(
        self, specs: Sequence[Spec], stored: Sequence[Spec], memory_options: MemoryOptions
    ) -> Sharing:
        """Return what lies together for these shapes, of values that lie as ``stored`` in memory."""
        by_shape = tuple(self.by_shape(specs))
        key = memory_options, by_shape
        sharing = self._sharing.get(key)
        if sharing is None or not sharing.fits(specs, stored):
            sharing = Sharing(self, specs, stored, memory_options.alignment, by_shape)
            for pair in sorted([*self.pairs, *by_shape], key=lambda p: p.node):
                bucketed = self.nodes[pair.node].op in BUCKETED  # these have one memory
                if memory_options.in_place or bucketed:
                    sharing.share(pair)
            self._sharing[key] = sharing
        return sharing

    def by_shape(self, specs: Sequence[Spec]) -> Iterable[Pair | Parts]:
        """Return what may lie where for these shapes alone."""
        for k, node in self._placing:
            for result, source in places(node, lambda i: specs[i]):
                if result in self.first and source in self.first:
                    yield Pair(k, result, source, False)
        for k, node in self._parting:
            parts = _parts(k, node, specs)
            if parts is not None and self.first.keys() >= {parts.whole, *dict(parts.begins)}:
                yield parts

    def _parts_stay(self, node: NodeRecord) -> bool:
        """Tell whether a node has parts of a whole, which in uneven steps always begin at the same elements."""
        steady = not self.program.uneven or self.fixed.issuperset(node.touches())
        return OPS[node.op].parts is not None and steady

    def _pairs(self, k: int, node: NodeRecord, grouped: bool) -> Iterable[Pair]:
        op = OPS[node.op]
        if node.op in BUCKETED:
            if grouped:
                both = zip(node.inputs.get("X", ()), node.outputs.get("Out", ()), strict=True)
                yield from (Pair(k, out, x, True) for x, out in both if out in self.first)
            return
        read = [i for operands in node.inputs.values() for i in operands if i >= 0]
        views = op.views if op.keeps_order(node.attrs, node.inputs) else {}
        in_place = (op.in_place, op.in_place_else) if node.kernel not in _APART else ()
        for view, shared in ((True, views), *((False, slots) for slots in in_place)):
            for slot, source in shared.items():
                results, operands = node.outputs.get(slot, ()), node.inputs.get(source, ())
                here = results and operands and {results[0], operands[0]} <= self.first.keys()
                if here and (view or read.count(operands[0]) == 1):
                    yield Pair(k, results[0], operands[0], view, view and op.cuts)
        for slot, source in op.twins(node.attrs).items():
            results, others = node.outputs.get(slot, ()), node.outputs.get(source, ())
            if results and others and {results[0], others[0]} <= self.first.keys():
                yield Pair(k, results[0], others[0], view=True, twin=True)


def _outside(program: ReplicaProgram, grouped: bool) -> set[int]:
    """Return the values that do not lie in the arena: what lasts, and what meets in a bucket."""
    outside = {i for i, value in enumerate(program.values) if value.kind == STATE}
    if grouped:
        for node in program.nodes:
            if node.op == BROADCAST:  # what it makes lies where its operand does
                pairs = zip(node.inputs["X"], node.outputs["Out"], strict=True)
                outside.update(out for x, out in pairs if x in outside)
            elif node.op in BUCKETED:
                outside.update((*node.inputs.get("X", ()), *node.outputs.get("Out", ())))
    return outside


@dataclass(frozen=True)
class MemoryPlan:
    """The places of a program's values in memory, for one set of shapes.

    ``specs``: of the values as they lie in memory. ``roots`` maps a value to the one whose storage it lies in
    (itself, or another); ``within`` to the byte of it where it begins, if that is not the first; ``same`` to a
    value whose very array it is; ``views`` are values that need no computing at all. ``offsets`` and ``spans``
    (the first and last node that need it) are those of storages. ``size``: bytes of the arena, ``host_size`` of
    that on the host beside a GPU. ``layout`` has the room that storages were given for other shapes, if they
    were (uneven steps in an arena that has room).
    """

    usage: Usage
    specs: Sequence[Spec]
    roots: Mapping[int, int]
    within: Mapping[int, int]
    same: Mapping[int, int]
    views: Collection[int]
    spans: Mapping[int, tuple[int, int]]
    offsets: Mapping[int, int]
    size: int
    host_size: int = 0
    alignment: int = ALIGNMENT
    sharing: Sharing | None = None
    layout: _Layout | None = None

    def on_host(self, position: int) -> bool:
        """Tell whether a value lies in the arena of the host."""
        return position in self.usage.hosted

    def at(self, position: int) -> int:
        """Return where a value begins."""
        return self.offsets[self.roots[position]] + self.within.get(position, 0)

    @cached_property
    def sizes(self) -> dict[int, int]:
        """Bytes of each storage."""
        return {root: nbytes(self.specs[root]) for root in self.spans}

    @cached_property
    def pieces(self) -> dict[int, list[int]]:
        """The pieces of storages that each value covers, by number: values begin and end where they are cut."""
        extents = {i: (a := self.within.get(i, 0), a + nbytes(self.specs[i])) for i in self.roots}
        shared = {self.roots[i] for i in self.within}
        cuts: dict[int, set[int]] = {root: {0} for root in self.spans}
        for i, root in self.roots.items():
            if root in shared:
                cuts[root].update(extents[i])
        numbers = {at: k for k, at in enumerate((r, c) for r, cs in cuts.items() for c in cs)}
        return {
            i: [numbers[root, c] for c in cuts[root] if begin <= c < max(end, begin + 1)]
            for i, root in self.roots.items()
            for begin, end in (extents[i],)
        }

    @cached_property
    def most(self) -> tuple[int, int]:
        """The node at which most bytes are needed at once, and how many: no arena can be smaller."""
        sizes = {r: self._aligned(n) for r, n in self.sizes.items() if not self.on_host(r)}
        return most_at_once({r: self.spans[r] for r in sizes}, sizes)

    def largest(self, count: int = 5) -> list[tuple[int, int]]:
        """Return the largest storages that are needed when most bytes are: (value, bytes)."""
        when = self.most[0]
        spans = ((r, span) for r, span in self.spans.items() if not self.on_host(r))
        live = [(r, self.sizes[r]) for r, (a, b) in spans if a <= when <= b]
        return sorted(live, key=lambda one: -one[1])[:count]

    def spread(self, spans: Mapping[int, tuple[int, int]]) -> MemoryPlan:
        """Return the plan for storages that are needed for longer, because lanes run side by side."""
        offsets, size = place(spans, {r: self._aligned(n) for r, n in self.sizes.items()})
        return replace(self, spans=spans, offsets=offsets, size=size, host_size=0)

    def resized(self, specs: Sequence[Spec], taken: int) -> MemoryPlan | None:
        """Return the plan for other shapes in which each value begins where it does in this one.

        None: they need another one, or room in the arena that is not ``taken`` yet.
        """
        sharing, layout = self.sharing, self.layout
        if sharing is None or layout is None or sharing.layout is not layout or self.size > taken:
            return None
        stored = self.usage.stored(specs)
        if tuple(self.usage.by_shape(specs)) != sharing.by_shape:
            return None
        fits = all(nbytes(stored[i]) <= most for i, most in layout.room.items())
        if not fits or not sharing.fits(specs, stored):
            return None
        return replace(self, specs=stored)

    def slack(self, specs: Sequence[Spec]) -> list[int]:
        """Return numbers that are below zero where values of these shapes do not fit where they lie.

        They are the spare bytes of each storage, and the elements by which an operand is larger than a result
        within it.
        """
        assert self.sharing is not None and self.layout is not None, "values keep their places"
        stored = self.usage.stored(specs)
        room = [most - nbytes(stored[i]) for i, most in self.layout.room.items()]
        return room + self.sharing.slack(specs)

    def _aligned(self, size: int) -> int:
        return aligned(size, self.alignment)


def plan_memory(
    usage: Usage,
    specs: Sequence[Spec],
    memory_options: MemoryOptions = ALL_MEMORY_OPTIONS,
    taken: int | None = None,
) -> MemoryPlan:
    """Return where each value lies, given exact shapes.

    ``taken``: so many bytes of an arena in address space have pages already. Where steps are uneven, values
    then keep the places that they have in it for other shapes, if there is room (None: as little as can be).
    """
    stored = usage.stored(specs)
    sharing = usage.sharing(specs, stored, memory_options)
    spans, alignment = sharing.spans, memory_options.alignment
    sizes = {i: aligned(nbytes(stored[i]), alignment) for i in spans}
    host = {i: sizes.pop(i) for i in usage.hosted if i in sizes}
    if memory_options.reuse:
        offsets, size = _placed(usage, sharing, sizes, taken)
        beside, host_size = _placed(usage, sharing, host, None)
    else:
        (offsets, size), (beside, host_size) = _side_by_side(sizes), _side_by_side(host)
    return MemoryPlan(
        usage,
        stored,
        sharing.roots,
        sharing.within,
        sharing.same,
        sharing.views,
        spans,
        {**offsets, **beside} if beside else offsets,
        size,
        host_size,
        alignment,
        sharing,
        sharing.layout if memory_options.reuse and not host and taken is not None else None,
    )


def _parts(k: int, node: NodeRecord, specs: Sequence[Spec]) -> Parts | None:
    """Return the values of a node that lie side by side in another of its values, if they do."""
    op = OPS[node.op]
    if op.parts is None:
        return None
    read = {s: [None if i < 0 else specs[i] for i in ids] for s, ids in node.inputs.items()}
    written = {s: [specs[i] for i in ids if i >= 0] for s, ids in node.outputs.items()}
    lying = op.parts(Inference(op, {**written, **read}, node.attrs, where=node.where))
    if lying is None:
        return None
    slots = {**node.inputs, **node.outputs}
    (whole,), parts = slots[lying.whole], slots[lying.slot]
    here = [(i, begin) for i, begin in zip(parts, lying.begins, strict=True) if i >= 0]
    if not here or len(dict(here)) < len(here):
        return None
    return Parts(k, whole, tuple(here), lying.slot in node.inputs)


def places(node: NodeRecord, spec: Callable[[int], Spec]) -> list[tuple[int, int]]:
    """Return the pairs (result, operand) that may share memory, by the op's rule, if it has one."""
    op = OPS[node.op]
    if op.places is None:
        return []
    read = {slot: [None if i < 0 else spec(i) for i in ids] for slot, ids in node.inputs.items()}
    by_slot = op.places(Inference(op, read, node.attrs, where=node.where))
    pairs = [(node.outputs[slot][k], node.inputs[source][j]) for slot, k, source, j in by_slot]
    return [(result, source) for result, source in pairs if result >= 0]


@lru_cache(_SPECS_KNOWN)
def _alike(one: Spec, other: Spec, cut: bool) -> str:
    """Return how the result of a pair and its operand compare: of one shape, of as many elements, or neither.

    ``cut``: the operand may have more.
    """
    if one == other and not cut:
        return "shape"
    more = prod(other.shape) - prod(one.shape) if one.dtype == other.dtype else -1
    return "elements" if not more or (cut and more > 0) else ""


def _differ(pair: Pair, alike: str) -> bool:
    """Tell whether the shapes of two values forbid that they lie together."""
    return not alike or (alike == "elements" and (pair.twin or not pair.view))


class Sharing:
    """Which values share a storage, decided node by node; see :class:`MemoryPlan` for what it has.

    ``by_shape`` is what may lie together for these shapes alone. ``layout`` is where the storages were placed
    last.
    """

    def __init__(
        self,
        usage: Usage,
        specs: Sequence[Spec],
        stored: Sequence[Spec],
        alignment: int,
        by_shape: tuple[Pair | Parts, ...] = (),
    ) -> None:
        self._usage, self._specs, self._stored, self._alignment = usage, specs, stored, alignment
        self.by_shape = by_shape
        self.roots = {i: i for i in usage.first}
        self._first, self._last = dict(usage.first), dict(usage.last)  # of storages, by root
        self.within: dict[int, int] = {}
        self.same: dict[int, int] = {}
        self.views: set[int] = set()
        self.layout: _Layout | None = None
        self._pairs: list[tuple[Pair, str]] = []  # whose shapes were compared, and how they do
        self._sizes: dict[int, int] = {}  # of values that were asked for their bytes

    def fits(self, specs: Sequence[Spec], stored: Sequence[Spec]) -> bool:
        """Tell whether values with other shapes would share storages just so."""
        return all(
            _alike(specs[pair.result], specs[pair.source], pair.cut) == alike
            for pair, alike in self._pairs
        ) and all(nbytes(stored[i]) == size for i, size in self._sizes.items())

    def slack(self, specs: Sequence[Spec]) -> list[int]:
        """Return the elements by which operands exceed results that are the first of theirs."""
        cut = [pair for pair in self._usage.pairs if pair.cut]
        return [prod(specs[p.source].shape) - prod(specs[p.result].shape) for p in cut]

    @cached_property
    def spans(self) -> dict[int, tuple[int, int]]:
        """The first and last node that need each storage."""
        return {i: (self._first[i], self._last[i]) for i, r in self.roots.items() if i == r}

    def share(self, one: Pair | Parts) -> None:
        """Let values lie together if that disturbs no other, and nothing kept them apart in an uneven step."""
        values = one.node, one.result if isinstance(one, Pair) else one.whole
        if values in self._usage.apart:
            return
        fit = self._share(one) if isinstance(one, Pair) else self._share_parts(one)
        if not fit and self._usage.program.uneven:
            self._usage.apart.add(values)

    def _share(self, pair: Pair) -> bool:
        """Let the result of a pair lie where its operand does; return whether the shapes allow it."""
        node, result, source, view = pair[:4]
        roots, last, usage = self.roots, self._last, self._usage
        bucketed = usage.nodes[node].op in BUCKETED
        if roots[result] != result or last[result] < node:
            return True
        root = roots[source]
        if self._specs[result].dtype != self._specs[source].dtype or not self._akin(result, source):
            return True
        if not view and (last[root] != node or _meets_itself(usage.nodes[node], roots, root)):
            return True
        alike = _alike(self._specs[result], self._specs[source], pair.cut)
        if _differ(pair, alike) and usage.program.uneven:
            return False
        self._pairs.append((pair, alike))
        if _differ(pair, alike) or (alike == "elements" and usage.program.values[result].layout):
            return True
        if alike == "shape" and (not view or bucketed):
            self.same[result] = source
        if view and not bucketed:
            self.views.add(result)
        roots[result] = root
        if source in self.within:
            self.within[result] = self.within[source]
        last[root] = max(last[root], last[result])
        return True

    def _akin(self, one: int, other: int) -> bool:
        """Tell whether two values lie in memory of one kind, in one order."""
        values = self._usage.program.values
        a, b = values[one], values[other]
        return a.layout == b.layout and a.host == b.host

    def _share_parts(self, parts: Parts) -> bool:
        """Let all parts of a value lie within it; return whether the shapes allow it.

        They do not where a part would begin between two multiples of the alignment, or where memory would be
        needed for much longer.
        """
        node, whole, begins, joined = parts
        width, roots = _ITEM_SIZES[self._stored[whole].dtype], self.roots
        values = [i for i, _ in begins]
        akin = all(self._akin(i, whole) for i in values)
        if self._usage.program.values[whole].layout or not akin:
            return True
        storages = {}  # of parts: the root of each, and its first byte in the storage of the whole
        for i, begin in begins:
            at = self.within.get(whole, 0) + begin * width
            if at % self._alignment:
                return False
            storages[roots[i]] = at
            if self._size(roots[i]) != self._size(i):  # it is a part of another already
                return True
        new = [whole] if joined else values
        if len(storages) < len(values) or any(self._usage.first[i] != node for i in new):
            return True
        if any(roots[i] != i for i in new):
            return True
        if not self._lasts_as_long(roots[whole], storages):
            return False
        self.views.update(new)
        root = roots[whole]
        for i, r in list(roots.items()) if joined else [(i, i) for i in values]:
            if r in storages:
                roots[i] = root
                self.within[i] = self.within.get(i, 0) + storages[r]
        self._first[root] = min(self._first[r] for r in (root, *storages))
        self._last[root] = max(self._last[r] for r in (root, *storages))
        return True

    def _size(self, position: int) -> int:
        size = self._sizes[position] = nbytes(self._stored[position])
        return size

    def _lasts_as_long(self, root: int, storages: Iterable[int]) -> bool:
        """Tell whether one storage in the place of several takes hardly more bytes times nodes."""
        apart = [root, *storages]
        first, last = (f(at[r] for r in apart) for f, at in ((min, self._first), (max, self._last)))
        each = sum(self._size(r) * (self._last[r] - self._first[r] + 1) for r in apart)
        return self._size(root) * (last - first + 1) <= _LONGER * each


def _meets_itself(node: NodeRecord, roots: Mapping[int, int], root: int) -> bool:
    """Tell whether a node has several operands, or already a result, in one storage."""
    touched = [i for values in (*node.inputs.values(), *node.outputs.values()) for i in values]
    return sum(roots.get(i) == root for i in touched) > 1


def _placed(
    usage: Usage, sharing: Sharing, sizes: Mapping[int, int], taken: int | None
) -> tuple[dict[int, int], int]:
    """Return offsets and size of the arena.

    Where steps are uneven, what no feed changes is placed first if that costs little, so that it lies at the
    same offsets for all shapes: gradients of parameters above all. So does the rest, as long as it fits into
    the room that it was given for larger shapes, and that room is taken already.
    """
    if not usage.program.uneven or not sizes:
        return place(sharing.spans, sizes)
    room, known = sizes, sharing.layout
    if taken is not None:
        fits = known is not None and known.size <= taken
        if known is not None and fits and all(n <= known.room[i] for i, n in sizes.items()):
            return known.offsets, known.size
        # What grew once grows again, and all must be placed anew then.
        grew = any(n > usage.room.get(i, n) for i, n in sizes.items())
        for i, n in sizes.items():
            most = n if i in usage.fixed else _with_room(2 * n if grew else n)
            usage.room[i] = max(most, usage.room.get(i, 0))
        room = {i: usage.room[i] for i in sizes}
    steady, least = place(sharing.spans, room, usage.fixed), place(sharing.spans, room)
    offsets, size = steady if steady[1] <= least[1] * _STEADY + _LITTLE else least
    if taken is not None:
        sharing.layout = _Layout(room, offsets, size)
    return offsets, size


def _with_room(size: int) -> int:
    """Return the largest size of the same class: address space costs nothing until it is touched."""
    step = max(1 << max(size.bit_length() - 1, 0), _CLASSES * ALIGNMENT) // _CLASSES
    return aligned(size, step)


def _side_by_side(sizes: Mapping[int, int]) -> tuple[dict[int, int], int]:
    offsets, total = {}, 0
    for root, size in sizes.items():
        offsets[root] = total
        total += size
    return offsets, total


def place(
    spans: Mapping[int, tuple[int, int]], sizes: Mapping[int, int], early: Collection[int] = ()
) -> tuple[dict[int, int], int]:
    """Return an offset for each storage, and the bytes of all: what is needed at one time does not overlap.

    The largest comes first, of those that are ``early`` and then of the others.
    """
    offsets: dict[int, int] = {}
    placed: list[tuple[int, int, int, int]] = []  # begin, end, first node, last node; by begin
    total = 0
    for root in sorted(sizes, key=lambda r: (r not in early, -sizes[r], spans[r])):
        size, (first, last) = sizes[root], spans[root]
        if not size:
            offsets[root] = 0
            continue
        best, room, reached = -1, total + size + 1, 0
        for begin, end, a, b in placed:
            if a <= last and b >= first:
                gap = begin - reached
                if size <= gap < room:
                    best, room = reached, gap
                    if gap == size:
                        break
                if end > reached:
                    reached = end
        at = offsets[root] = best if best >= 0 else reached
        insort(placed, (at, at + size, first, last))
        total = max(total, at + size)
    return offsets, total


def most_at_once(spans: Mapping[int, tuple[int, int]], sizes: Mapping[int, int]) -> tuple[int, int]:
    """Return the node at which the storages needed are largest together, and their bytes."""
    changes: dict[int, int] = {}
    for root, (first, last) in spans.items():
        changes[first] = changes.get(first, 0) + sizes[root]
        changes[last + 1] = changes.get(last + 1, 0) - sizes[root]
    when, most, now = _BEFORE, 0, 0
    for node in sorted(changes):
        now += changes[node]
        if now > most:
            when, most = node, now
    return when, most


Fits = Callable[[int], bool]


def largest_that_fits(fits: Fits, below: int) -> int:
    """Return the largest number under ``below`` that fits (0: none), if larger ones fit less."""
    low, high = 0, below
    while high - low > 1:
        middle = (low + high) // 2
        if fits(middle):
            low = middle
        else:
            high = middle
    return low
