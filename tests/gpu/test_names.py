"""CuPy and cuDNN's frontend have the names that we call, where they are installed: no GPU is needed."""

from __future__ import annotations

import ast
import importlib
import inspect
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

import rowlock
from rowlock.executor.cuda.cudnn_graphs import describe_graph
from rowlock.executor.cuda.dnn import (
    Attention,
    AttentionGrad,
    BatchNorm,
    BatchNormGrad,
    Convolution,
    Graph,
    Tensor,
)
from tests.executor.fake_cudnn import FakeGraph, Frontend

ROOMS = [Path(rowlock.__file__).parent / room for room in ("executor", "cluster")]
OWNERS = {"a", "dev", "device", "runtime", "self"}  # of array modules
UFUNC = {"axes", "axis", "casting", "dtype", "keepdims", "out", "where"}


def calls_of_array_modules() -> Iterator[tuple[str, list[str], str]]:
    """Yield names behind ``xp``, the keywords that each is called with, and where that is."""
    for path in (path for room in ROOMS for path in sorted(room.resolve().rglob("*.py"))):
        nodes = list(ast.walk(ast.parse(path.read_text())))
        keywords = {
            id(n.func): [k.arg for k in n.keywords if k.arg]
            for n in nodes
            if isinstance(n, ast.Call)
        }
        for node in nodes:
            if isinstance(node, ast.Attribute):
                owners, separator, name = ast.unparse(node).rpartition("xp.")
                names = set(filter(None, owners.split(".")))
                if separator and name.replace(".", "").isidentifier() and names <= OWNERS:
                    yield name, keywords.get(id(node), []), f"{path.name}:{node.lineno}"


def parameters(function: Any) -> set[str]:
    try:
        return set(inspect.signature(function).parameters)
    except ValueError:  # Cython tells in the first line of the text
        return set(re.findall(r"(\w+)[,=)]", function.__doc__.splitlines()[0]))


def test_cupy_has_what_is_called_of_array_modules() -> None:
    cupy = pytest.importorskip("cupy")
    calls, wrong = list(calls_of_array_modules()), []
    for name, keywords, where in calls:
        part = cupy
        for attribute in name.split("."):
            part = getattr(part, attribute, None)
        if part is None:
            wrong.append(f"{where}: {name}")
        elif keywords:
            known = UFUNC if isinstance(part, cupy.ufunc) else parameters(part)
            wrong += [f"{where}: {name}({k}=)" for k in keywords if k not in known]
    assert len(calls) > 100 and not wrong


IMAGE = Tensor((2, 8, 4, 4), (128, 1, 32, 8), "bfloat16")
FILTERS = Tensor((8, 8, 1, 1), (8, 1, 1, 1), "bfloat16")
HEADS = Tensor((2, 3, 16, 8), (384, 128, 8, 1), "bfloat16")
MASK = Tensor((1, 1, 16, 16), (256, 256, 16, 1), "bfloat16")


def graphs() -> Iterator[Graph]:
    """Yield a description of each kind, with and without what it may have."""
    windows: Any = ((1, 1), (1, 1), (0, 0), (0, 0))
    for result in "yxw":
        yield Convolution(IMAGE, FILTERS, IMAGE, result, *windows)
    yield Convolution(IMAGE, FILTERS, IMAGE, "x", *windows, addend=IMAGE)
    yield BatchNorm(IMAGE, 1e-5)
    yield BatchNorm(IMAGE, 1e-5, adds=True, relu=True, masks=True)
    yield BatchNormGrad(IMAGE, relu=True)
    yield BatchNormGrad(IMAGE, masked=True, forks=True)
    for causal in (False, True):
        attention = Attention(HEADS, HEADS, HEADS, MASK, HEADS, 0.5, causal, 0.25 * causal)
        yield attention
        yield AttentionGrad(attention, *[HEADS] * 4, None if causal else MASK)


def test_the_frontend_takes_each_description() -> None:
    """It knows operations and arguments by these names."""
    pytest.importorskip("cudnn")
    for graph in graphs():
        described = describe_graph(graph)
        assert len(described.nodes) >= 1, graph


def test_the_stand_in_has_no_name_that_the_frontend_lacks() -> None:
    pytest.importorskip("cudnn")
    frontend = importlib.import_module("cudnn")
    for ours, theirs in ((Frontend, frontend), (FakeGraph, frontend.pygraph)):
        names = [n for n, v in vars(ours).items() if not n.startswith("_") and n != "run" and v]
        assert len(names) > 8 and not [name for name in names if not hasattr(theirs, name)]
    for name in ("diagonal_alignment", "data_type", "heur_mode", "numerical_note", "scalar_type"):
        members = vars(getattr(Frontend, name))
        assert all(hasattr(getattr(frontend, name), member) for member in members), name
