"""Wrong plans, as one rank may hold them: a compiled program as plain data, changed at random.

Nothing here knows how ranks find out that they disagree; a mutation changes what collectives do, and leaves
every other word of the plan as it was.
"""

from __future__ import annotations

import copy
import json
import random
from collections.abc import Callable, Mapping
from typing import Any

from rowlock.graph.ops.collective import ALL_REDUCE, BARRIER, BROADCAST, COLLECTIVES, REDUCE
from rowlock.strategies.types import VarType

Plan = dict[str, Any]
Node = dict[str, Any]
Mutation = Callable[[Plan, random.Random, int], None]
DTYPES = [int(t) for t in (VarType.FP16, VarType.FP32, VarType.FP64, VarType.INT32)]


def meetings(plan: Plan) -> list[Node]:
    return [node for node in plan["nodes"] if node["op"] in COLLECTIVES]


def _carrying(plan: Plan, members: int = 1) -> list[Node]:
    return [node for node in meetings(plan) if len(node["inputs"].get("X", ())) >= members]


def drop(plan: Plan, draw: random.Random, size: int) -> None:
    """A collective does not happen; what follows reads what the rank has alone, or what nobody wrote."""
    node = draw.choice(meetings(plan))
    plan["nodes"] = [other for other in plan["nodes"] if other is not node]
    if draw.random() < 0.5:
        _read_alone(plan, node["inputs"].get("X", ()), node["outputs"].get("Out", ()))


def drop_last(plan: Plan, draw: random.Random, size: int) -> None:
    """The collective that the others leave last does not happen."""
    node = meetings(plan)[-1]
    plan["nodes"] = [other for other in plan["nodes"] if other is not node]
    _read_alone(plan, node["inputs"].get("X", ()), node["outputs"].get("Out", ()))


def repeat(plan: Plan, draw: random.Random, size: int) -> None:
    """A collective happens twice."""
    node = draw.choice(meetings(plan))
    at = next(i for i, other in enumerate(plan["nodes"]) if other is node)
    plan["nodes"].insert(at, copy.deepcopy(node))


def swap(plan: Plan, draw: random.Random, size: int) -> None:
    """Two collectives stand in one another's place."""
    nodes = plan["nodes"]
    places = [i for i, node in enumerate(nodes) if node["op"] in COLLECTIVES]
    if len(places) > 1:
        a, b = draw.sample(places, 2)
        nodes[a], nodes[b] = nodes[b], nodes[a]


def swap_contents(plan: Plan, draw: random.Random, size: int) -> None:
    """Two collectives carry one another's values."""
    nodes = _carrying(plan)
    if len(nodes) > 1:
        a, b = draw.sample(nodes, 2)
        for part in ("inputs", "outputs"):
            a[part], b[part] = b[part], a[part]


def trade(plan: Plan, draw: random.Random, size: int) -> None:
    """A member of one bucket goes with another's."""
    nodes = _carrying(plan)
    if len(nodes) > 1:
        a, b = draw.sample(nodes, 2)
        i, j = (draw.randrange(len(node["inputs"]["X"])) for node in (a, b))
        for part, slot in (("inputs", "X"), ("outputs", "Out")):
            a[part][slot][i], b[part][slot][j] = b[part][slot][j], a[part][slot][i]


def move(plan: Plan, draw: random.Random, size: int) -> None:
    """A member goes to another bucket."""
    givers, takers = _carrying(plan, 2), _carrying(plan)
    if givers and len(takers) > 1:
        a = draw.choice(givers)
        b = draw.choice([node for node in takers if node is not a])
        i, at = draw.randrange(len(a["inputs"]["X"])), draw.randint(0, len(b["inputs"]["X"]))
        for part, slot in (("inputs", "X"), ("outputs", "Out")):
            b[part][slot].insert(at, a[part][slot].pop(i))
        if "roots" in a["attrs"] and "roots" in b["attrs"]:
            b["attrs"]["roots"].insert(at, a["attrs"]["roots"].pop(i))


def leave_out(plan: Plan, draw: random.Random, size: int) -> None:
    """A member of a bucket does not go at all."""
    nodes = _carrying(plan, 2)
    if nodes:
        node = draw.choice(nodes)
        i = draw.randrange(len(node["inputs"]["X"]))
        x, out = node["inputs"]["X"].pop(i), node["outputs"]["Out"].pop(i)
        if node["attrs"].get("roots"):
            node["attrs"]["roots"].pop(i)
        _read_alone(plan, [x], [out])


def shuffle(plan: Plan, draw: random.Random, size: int) -> None:
    """The members of a bucket lie in another order."""
    nodes = _carrying(plan, 2)
    if nodes:
        node = draw.choice(nodes)
        order = list(range(len(node["inputs"]["X"])))
        draw.shuffle(order)
        for part, slot in (("inputs", "X"), ("outputs", "Out")):
            node[part][slot] = [node[part][slot][i] for i in order]


def reshape(plan: Plan, draw: random.Random, size: int) -> None:
    """A member has another size, or the same in other dimensions."""
    nodes = _carrying(plan)
    if nodes:
        node = draw.choice(nodes)
        i = draw.randrange(len(node["inputs"]["X"]))
        shape = list(plan["values"][node["inputs"]["X"][i]]["shape"])
        changed = draw.choice(
            [shape[::-1], [*shape, 1], [n * 2 for n in shape], [max(n - 1, 1) for n in shape]]
        )
        for position in (node["inputs"]["X"][i], node["outputs"]["Out"][i]):
            plan["values"][position]["shape"] = changed


def retype(plan: Plan, draw: random.Random, size: int) -> None:
    """The members of a bucket, or one of them, have another element type."""
    nodes = _carrying(plan)
    if nodes:
        node, dtype = draw.choice(nodes), draw.choice(DTYPES)
        pairs = list(zip(node["inputs"]["X"], node["outputs"]["Out"], strict=True))
        for pair in pairs if draw.random() < 0.7 else [draw.choice(pairs)]:
            for position in pair:
                plan["values"][position]["dtype"] = dtype


def other_op(plan: Plan, draw: random.Random, size: int) -> None:
    """A collective is another kind of collective."""
    node = draw.choice(meetings(plan))
    node["op"] = draw.choice([ALL_REDUCE, REDUCE, BROADCAST, BARRIER])
    if node["op"] in (REDUCE, BROADCAST) and "roots" not in node["attrs"]:
        node["attrs"]["roots"] = [draw.randrange(size) for _ in node["inputs"].get("X", ())]


def other_roots(plan: Plan, draw: random.Random, size: int) -> None:
    """A value goes to, or comes from, another rank."""
    nodes = [node for node in meetings(plan) if node["attrs"].get("roots")]
    if nodes:
        roots = draw.choice(nodes)["attrs"]["roots"]
        roots[draw.randrange(len(roots))] = draw.randrange(size)


MUTATIONS: Mapping[str, Mutation] = {
    mutation.__name__: mutation
    for mutation in (
        drop,
        drop_last,
        repeat,
        swap,
        swap_contents,
        trade,
        move,
        leave_out,
        shuffle,
        reshape,
        retype,
        other_op,
        other_roots,
    )
}


def mutated(text: str, draw: random.Random, size: int) -> tuple[str, str]:
    """Return the name of a mutation and a program (JSON) that it made another one."""
    original = json.loads(text)
    while True:
        name = draw.choice(list(MUTATIONS))
        plan = copy.deepcopy(original)
        MUTATIONS[name](plan, draw, size)
        if draw.random() < 0.5:  # as a compiler would have left it, or as it happens to be
            _number(plan)
        if plan != original:  # it found something to change, and did not change like for like
            return name, json.dumps(plan)


def _number(plan: Plan) -> None:
    nodes = meetings(plan)
    for number, node in enumerate(nodes):
        node["attrs"]["bucket"] = number
    plan["buckets"] = [list(node["inputs"].get("X", ())) for node in nodes]


def _read_alone(plan: Plan, operands: list[int], results: list[int]) -> None:
    """Let what reads the results read the operands instead."""
    instead = dict(zip(results, operands, strict=False))
    for node in plan["nodes"]:
        for slot, values in node["inputs"].items():
            node["inputs"][slot] = [instead.get(i, i) for i in values]
    plan["fetches"] = [instead.get(i, i) for i in plan["fetches"]]
