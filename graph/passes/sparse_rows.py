"""Let the gradient of a sparse table stay rows, from its lookups to the update.

Ops that act row by row get the rows in the place of the gradient (``_ROW_BY_ROW``); before any other op the
gradient is made dense. An update takes its rows out of the parameter and its state, and puts them back. Where
elements without gradient change, too, the op for these updates the whole table beside that.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import replace
from itertools import chain
from typing import Any, NamedTuple

from ...strategies.errors import Unsupported
from ...strategies.types import VarType
from ..ir.graph import FEED, TEMP, Graph, Node, Value, infer_node
from ..ir.replica_program import lower
from ..ir.segments import first_segment
from ..ops.amp import CHECK, UPDATE
from ..ops.collective import GATHER_ROWS, ROW_COUNTS, SPREAD_ROWS
from ..ops.registry import OPS, Spec
from ..ops.rules import product
from ..ops.update import WITHOUT_GRAD
from ..program.role import OpRole
from .collectives import newest_versions
from .target import Pass, Target

_COUNTS = Value(ROW_COUNTS, Spec((-1, -1), VarType.INT64), FEED)  # until their number is known


class _Lookup(NamedTuple):
    """The slot of the table that an op's forward looks rows up in; what makes rows of its gradient, of what.

    ``counted``: the slot whose elements are as many as these rows. ``settings``: more attributes of ``op``.
    """

    table: str
    op: str
    counted: str
    slots: tuple[str, ...]
    attrs: tuple[str, ...]
    settings: Mapping[str, bool] = {}

    @property
    def grad(self) -> str:
        return f"{self.table}@GRAD"


_EMBEDDING = _Lookup("W", "embedding_rows", "Ids", ("Ids", "Out@GRAD"), ("padding_idx",))
_POOLED = _EMBEDDING._replace(slots=("Ids", "Ids@LOD", "Out@GRAD"), settings={"pooled": True})
_LOOKUPS: Mapping[str, _Lookup] = {  # by gradient op
    "lookup_table_grad": _EMBEDDING,
    "lookup_table_v2_grad": _EMBEDDING,
    "fused_embedding_seq_pool_grad": _POOLED,
    "nce_grad": _Lookup(
        "Weight",
        "nce_rows",
        "SampleLabels",
        ("Input", "SampleWeight", "CustomDistProbs", "SampleLogits", "SampleLabels", "Cost@GRAD"),
        ("num_total_classes", "num_neg_samples", "sampler"),
    ),
    "hierarchical_sigmoid_grad": _Lookup(
        "W",
        "hierarchical_sigmoid_rows",
        "PreOut",
        ("X", "Label", "PathTable", "PathCode", "PreOut", "Out@GRAD"),
        ("num_classes",),
    ),
}


class Rows(NamedTuple):
    """A gradient as rows; ``merged`` ones are each there once, in order.

    ``counted`` have as many elements as there are rows. ``number``: by which the feed has how many each place
    brought, once they are gathered.
    """

    rows: Value
    values: Value
    counted: tuple[Value | None, ...] = ()
    merged: bool = False
    number: int = -1


class _RowByRow(NamedTuple):
    """A way to compute an op on rows: whether equal rows must be merged before, and which nodes allow it."""

    merged: bool = True
    takes: Callable[[Node], bool] = lambda node: True


def _by_number(node: Node) -> bool:
    (other,) = node.inputs["Y"]
    return other is not None and product(other.spec.shape) == 1


# Ops whose results for rows of zeros are zeros, or do not depend on these: X in, Out in the same order.
_ROW_BY_ROW: Mapping[str, _RowByRow] = {
    "assign": _RowByRow(merged=False),
    "cast": _RowByRow(),
    "scale": _RowByRow(merged=False, takes=lambda node: not node.attrs["bias"]),
    "elementwise_mul": _RowByRow(merged=False, takes=_by_number),
    "elementwise_div": _RowByRow(merged=False, takes=_by_number),
    "clip": _RowByRow(takes=lambda node: node.attrs["min"] <= 0 <= node.attrs["max"]),
    "clip_by_norm": _RowByRow(),
    "square": _RowByRow(),
    "squared_l2_norm": _RowByRow(),
    "reduce_sum": _RowByRow(merged=False, takes=lambda node: node.attrs["reduce_all"]),
    "merge_selected_rows": _RowByRow(),
    CHECK: _RowByRow(),
    UPDATE: _RowByRow(),
}


def sparse_rows(graph: Graph, target: Target) -> Graph:
    """Replace dense gradients of embeddings by rows, which are gathered from all replicas."""
    rewriter = _Rewriter(graph, target)
    nodes = [new for node in graph.nodes for new in rewriter.rewrite(node)]
    if not rewriter.lookups:
        return graph
    feeds = graph.feeds
    if rewriter.gathers:
        shape = (rewriter.gathers, target.replicas)
        counts = replace(_COUNTS, spec=_COUNTS.spec._replace(shape=shape))
        nodes = [node.reading({_COUNTS: counts}) for node in nodes]
        feeds = (*feeds, counts)
    graph = replace(graph.with_nodes(nodes, rewriter.swap), feeds=feeds)
    for note in dict.fromkeys(rewriter.notes):
        graph = graph.noted(f"sparse_rows: {note}")
    return graph


def counted_before(graph: Graph, target: Target) -> bool:
    """Tell whether it is known before a step how many rows a place brings: one place alone need not know.

    What is looked up must have a shape before the step is cut.
    """
    lookups = [node for node in graph.nodes if _sparse(node)]
    if target.replicas * target.trainers == 1 or not lookups:
        return True
    first = first_segment(lower(graph, (), dict.fromkeys(graph.nodes, ""), 0))
    outputs = (positions for node in first.nodes for positions in node.outputs.values())
    records = [first.values[i] for i in (*first.feeds, *chain(*outputs)) if i >= 0]
    computable = {(record.name, record.version) for record in records}
    counted = chain(*(node.inputs[_LOOKUPS[node.op].counted] for node in lookups))
    return computable >= {(value.name, value.version) for value in counted if value is not None}


def refuse_lazy(graph: Graph, target: Target) -> None:
    """Refuse a lazy update of sparse gradients that cannot be rows here: a dense one would move all rows.

    Raises:
        Unsupported: names the parameter.
    """
    writer = graph.writers()

    def stays(grad: Value | None) -> bool | None:
        """Whether a gradient is rows; None: it is none of sparse lookups alone."""
        node = writer.get(grad) if grad is not None else None
        if node is None or grad is None:
            return None
        if node.op in _LOOKUPS:
            of_table = _sparse(node) and grad in node.outputs[_LOOKUPS[node.op].grad]
            return PASS.is_on(target) if of_table else None
        if node.op not in _ROW_BY_ROW and node.op != "sum":
            return None
        pairs = zip(node.inputs["X"], node.outputs["Out"], strict=False)
        sources = node.inputs["X"] if node.op == "sum" else [x for x, out in pairs if out is grad]
        states = [stays(x) for x in sources]
        return None if None in states else all(states)

    inside = {name for node in graph.nodes for name in _looked_up_inside(node.attrs)}
    for node in graph.nodes:
        if node.op != "adam" or not node.attrs["lazy_mode"]:
            continue
        (param,), (grad,) = node.inputs["Param"], node.inputs["Grad"]
        assert param is not None
        if param.name in inside:
            raise Unsupported(
                f"Adam(lazy_mode=True): the gradient of '{param}' cannot stay rows, for it is looked up in a "
                f"loop whose rounds data decide, and a dense update would move all rows. Look it up before "
                f"the loop, or leave lazy_mode out. Built at {node.where}."
            )
        if stays(grad) is False:
            raise Unsupported(
                f"Adam(lazy_mode=True): the gradient of '{param}' cannot stay rows, and a "
                f"dense update would move all rows. On several places what is looked up must be fed, or "
                f"computed before a loop or a shape that data decide. Built at {node.where}."
            )


def _looked_up_inside(attrs: Mapping[str, Any]) -> Iterator[str]:
    """Yield the names of tables of which the block of a loop, or one within it, has sparse gradients."""
    block = attrs.get("block")
    if not isinstance(block, dict):
        return
    for node in block["nodes"]:
        lookup = _LOOKUPS.get(node["op"])
        if lookup is not None and node["attrs"].get("is_sparse"):
            yield block["values"][node["inputs"][lookup.table][0]]["name"]
        yield from _looked_up_inside(node["attrs"])


def _sparse(node: Node) -> bool:
    """Tell whether a node is the gradient of a sparse lookup."""
    lookup = _LOOKUPS.get(node.op)
    return (
        lookup is not None
        and bool(node.attrs["is_sparse"])
        and any(node.outputs.get(lookup.grad, ()))
    )


class _Rewriter:
    """Knows which values are rows now, and which of these were made dense as well."""

    def __init__(self, graph: Graph, target: Target) -> None:
        self.lookups = self.gathers = 0
        self.notes: list[str] = []
        self._rows: dict[Value, Rows] = {}
        self._dense: set[Value] = set()
        self._fetches = graph.needed(target.fetches)
        self._gathers = target.many and target.reduces_to != "_NoReduce"
        self._spreads = self._gathers and target.reduces_to == "Reduce"
        self._newest = newest_versions(graph)
        self._number = 0
        self.swap: dict[Value, Value] = {}  # what is written again behind its update

    def rewrite(self, node: Node) -> Iterator[Node]:
        """Yield what a node becomes."""
        node = node.reading(self.swap)
        sparse = [value for value in node.reads() if value in self._rows]
        if _sparse(node):
            yield from self._lookup(node)
        elif not sparse:
            yield node
            return
        elif node.op == "sum" and all(v in self._rows for v in node.reads()):
            yield from self._sum(node)
        elif node.op in _ROW_BY_ROW and _ROW_BY_ROW[node.op].takes(node):
            yield from self._row_by_row(node)
        elif self._updates(node):
            yield from self._update(node)
        else:
            for value in dict.fromkeys(sparse):
                yield from self._make_dense(value, node)
            yield node
            return
        for value in node.writes():
            if value in self._rows and value in self._fetches:
                yield from self._make_dense(value, node)

    # -- gradients ------------------------------------------------------------------------------

    def _lookup(self, node: Node) -> Iterator[Node]:
        """Yield what makes rows of the gradient of a lookup's table, and the op for its other gradients."""
        lookup = _LOOKUPS[node.op]
        (table,), (grad,) = node.inputs[lookup.table], node.outputs[lookup.grad]
        assert table is not None and grad is not None
        self.lookups += 1
        others = {slot: v for slot, v in node.outputs.items() if slot != lookup.grad}
        if any(value is not None for values in others.values() for value in values):
            own = tuple(pair for pair in node.grads if pair[1] != grad)
            yield replace(node, outputs=others, grads=own)
        inputs = {slot: node.inputs[slot] for slot in lookup.slots if slot in node.inputs}
        attrs = {**{name: node.attrs[name] for name in lookup.attrs}, **lookup.settings}
        attrs["height"] = table.spec.shape[0]
        new, (rows, values) = self._new(node, lookup.op, inputs, ("Rows", "Values"), attrs)
        yield new
        self._rows[grad] = Rows(rows, values, tuple(node.inputs[lookup.counted]))
        of_table = tuple(pair for pair in node.grads if pair[1] == grad)
        yield from self._gather(replace(node, grads=of_table))

    def _sum(self, node: Node) -> Iterator[Node]:
        """Yield what puts rows behind each other."""
        (total,), parts = node.writes(), [self._rows[value] for value in node.reads()]
        wholes: list[Value] = []
        for column in ([part.rows for part in parts], [part.values for part in parts]):
            new, whole = self._new(node, "concat", {"X": tuple(column)}, ("Out",), {"axis": 0})
            yield new
            wholes += whole
        counted = tuple(chain(*(part.counted for part in parts)))
        self._rows[total] = Rows(wholes[0], wholes[1], counted)
        yield from self._gather(node)

    def _row_by_row(self, node: Node) -> Iterator[Node]:
        """Yield the op on rows; its results are rows of the same numbers."""
        swap: dict[Value, Value] = {}
        for value in node.inputs["X"]:
            if value in self._rows and value is not None:
                if _ROW_BY_ROW[node.op].merged:
                    yield from self._merge(value, node)
                swap[value] = self._rows[value].values
        outputs = list(node.outputs["Out"])
        new = node.reading(swap)
        specs = infer_node(new, lambda value: value.spec)["Out"]
        for k, (value, out) in enumerate(zip(node.inputs["X"], outputs, strict=True)):
            if (
                value in swap
                and value is not None
                and out is not None
                and out.spec.shape == value.spec.shape
            ):
                values = self._value(out.name, specs[k])
                self._rows[out] = self._rows[value]._replace(values=values)
                outputs[k] = values
        yield replace(new, outputs={**node.outputs, "Out": tuple(outputs)}, grads=())
        yield from self._gather(node)

    def _gather(self, node: Node) -> Iterator[Node]:
        """Yield what gathers the rows of all replicas, if a node finishes a parameter's gradient."""
        for _, grad in node.grads if self._gathers and node.role & OpRole.Backward else ():
            rows, values, counted, *_ = self._rows[grad]
            height = grad.spec.shape[0]
            new, rows, values = self._meeting(node, GATHER_ROWS, rows, values, self.gathers, height)
            yield replace(new, inputs={**new.inputs, "Counted": counted})
            self._rows[grad] = Rows(rows, values, number=self.gathers)
            self.gathers += 1

    def _merge(self, value: Value, like: Node) -> Iterator[Node]:
        """Yield what merges equal rows, unless they are merged."""
        if not self._rows[value].merged:
            rows, values, *_ = self._rows[value]
            inputs, attrs = {"Rows": (rows,), "Values": (values,)}, {"height": value.spec.shape[0]}
            slots = ("OutRows", "OutValues")
            new, (rows, values) = self._new(like, "merge_rows", inputs, slots, attrs)
            yield new
            self._rows[value] = self._rows[value]._replace(rows=rows, values=values, merged=True)

    def _make_dense(self, value: Value, reader: Node) -> Iterator[Node]:
        """Yield what makes the whole gradient, the first time that one is needed."""
        if value not in self._dense:
            self._dense.add(value)
            rows, values, *_ = self._rows[value]
            inputs, attrs = {"Rows": (rows,), "Values": (values,)}, {"height": value.spec.shape[0]}
            yield _like(reader, "dense_rows", inputs, {"Out": (value,)}, attrs)
            self.notes.append(
                f"{value.name} is made dense for {reader.op}, built at {reader.where}"
            )

    # -- updates --------------------------------------------------------------------------------

    def _updates(self, node: Node) -> bool:
        """Tell whether a node updates rows each by itself."""
        update = OPS[node.op].update
        return update is not None and update.by_element and len(node.inputs["Param"]) == 1

    def _update(self, node: Node) -> Iterator[Node]:
        """Yield the update of the rows, and before it that of elements without gradient if these change."""
        (param,), (grad,) = node.inputs["Param"], node.inputs["Grad"]
        update = OPS[node.op].update
        assert param is not None and grad is not None and update is not None
        yield from self._merge(grad, node)
        rows, values, _, _, number = self._rows[grad]
        lazy = node.op == "adam" and node.attrs["lazy_mode"]
        alone = lazy or update.keeps(node.attrs)
        tables = {
            slot: value
            for slot, (value,) in ((s, v) for s, v in node.inputs.items() if len(v) == 1)
            if slot != "Grad" and value is not None and value.spec.shape == param.spec.shape
        }
        parts: dict[str, Value] = {}
        for slot, table in tables.items():
            source = {"Table": (table,), "Rows": (rows,)}
            new, (parts[slot],) = self._new(node, "take_rows", source, ("Out",), {})
            yield new
        if not alone:
            whole = self._without_grad(node)
            yield whole
            in_place = OPS[node.op].in_place
            tables |= {in_place[slot]: v for slot, (v,) in whole.outputs.items() if v is not None}
        attrs = {**node.attrs, "powers_first": True} if lazy else node.attrs
        operands = {**parts, "Grad": values}
        inputs = {
            slot: (operands[slot],) if slot in operands else v for slot, v in node.inputs.items()
        }
        updated = replace(node, inputs=inputs, attrs=attrs)
        spread = number if alone and self._spreads else -1
        yield from self._put(updated, tables, rows, spread)
        cost = (
            "updates these alone" if alone else "moves rows without gradient, too: it updates all"
        )
        self.notes.append(f"gradients of {param.name} stay rows; {node.op} {cost}")

    def _without_grad(self, node: Node) -> Node:
        """Return the update of all elements as if none had a gradient."""
        op = OPS[f"{node.op}{WITHOUT_GRAD}"]
        return replace(
            node,
            op=op.type,
            inputs={slot: v for slot, v in node.inputs.items() if slot != "Grad"},
            outputs={
                slot: tuple(v and self._later(v) for v in values)
                for slot, values in node.outputs.items()
                if slot in op.in_place
            },
            attrs={name: v for name, v in node.attrs.items() if name in op.attrs},
            grads=(),
        )

    def _put(
        self, updated: Node, tables: Mapping[str, Value], rows: Value, spread: int
    ) -> Iterator[Node]:
        """Yield the update of rows, and what puts them back into the tables.

        ``spread``: the number of the gradient whose parameter gets its rows at all ranks; -1: of none.
        """
        outputs, puts = dict(updated.outputs), []
        lazy = updated.attrs.get("powers_first", False)
        for slot, source in OPS[updated.op].in_place.items():
            (out,) = updated.outputs.get(slot, ()) or (None,)
            if out is not None and source in tables:
                part = self._value(
                    out.name, out.spec._replace(shape=(*rows.spec.shape, out.spec.shape[1]))
                )
                outputs[slot] = (part,)
                puts.append((tables[source], part, out, spread if source == "Param" else -1))
        yield replace(updated, outputs=outputs)
        for table, part, out, number in puts:
            place = rows
            if number >= 0:
                height = table.spec.shape[0]
                new, place, part = self._meeting(updated, SPREAD_ROWS, rows, part, number, height)
                yield new
            if table.version >= out.version or lazy:  # another value than that of the dense update
                self.swap[out] = out = self._later(out)
            inputs = {"Table": (table,), "Rows": (place,), "Values": (part,)}
            yield _like(updated, "put_rows", inputs, {"Out": (out,)}, {})

    # -- values ---------------------------------------------------------------------------------

    def _later(self, value: Value) -> Value:
        """Return a later version of a value."""
        self._newest[value.name] += 1
        return replace(value, version=self._newest[value.name])

    def _meeting(
        self, like: Node, op: str, rows: Value, values: Value, number: int, height: int
    ) -> tuple[Node, Value, Value]:
        """Return a collective of rows, and those that it makes."""
        inputs = {"Rows": (rows,), "Values": (values,), "Counts": (_COUNTS,)}
        attrs = {"number": number, "height": height}
        new, (rows, values) = self._new(like, op, inputs, ("OutRows", "OutValues"), attrs)
        return new, rows, values

    def _new(
        self,
        like: Node,
        op: str,
        inputs: Mapping[str, tuple[Value | None, ...]],
        slots: Sequence[str],
        attrs: Mapping[str, object],
    ) -> tuple[Node, list[Value]]:
        """Return a node with new values for its output slots, and these."""
        node = _like(like, op, inputs, {}, attrs)
        specs = infer_node(node, lambda value: value.spec)
        name = next(v.name for v in node.reads())
        values = [self._value(name, *specs[slot]) for slot in slots]
        return replace(node, outputs={s: (v,) for s, v in zip(slots, values, strict=True)}), values

    def _value(self, name: str, spec: Spec) -> Value:
        """Return a temporary named after another value."""
        self._number += 1
        return Value(f"{name.split('@ROWS')[0]}@ROWS{self._number}", spec, TEMP)


def _like(
    node: Node,
    op: str,
    inputs: Mapping[str, tuple[Value | None, ...]],
    outputs: Mapping[str, tuple[Value | None, ...]],
    attrs: Mapping[str, object],
) -> Node:
    full = {**OPS[op].attrs, **attrs}
    return replace(node, op=op, inputs=inputs, outputs=outputs, attrs=full, grads=())


PASS = Pass(
    "sparse_rows",
    sparse_rows,
    lambda target: target.rows,
    "before collectives: rows are gathered, not summed",
)
