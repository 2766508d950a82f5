"""Optimizer updates: one pass over all that an update reads and writes; many parameters are one launch.

What depends on no element (rates, corrections, powers) is computed once a thread, from numbers that are read in
device memory when the kernel runs.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

import numpy as np

from ....graph.ir.graph import Node
from ....graph.ops.fused_optimize import FUSED
from ....graph.ops.pointwise import arguments
from ....graph.ops.update import Update
from ....strategies.types import VarType
from ...codegen.cuda_source import SCALAR_SOURCE, CudaWriter, Value, c_type
from ...cuda.kernel import CudaKernel
from ...cuda.runtime import Step
from ...cuda.transfers import device_array, upload
from ...device.device import Device
from ..array.optimize import MASTER_OPERAND as _MASTER
from ..array.optimize import SKIP_OPERAND as _SKIP
from ..array.optimize import UPDATES, Arrays, add_kernel, in_use
from .support import launch, on_boundary
from .update_totals import Inside, Totals

_CHUNK = 8192  # elements that a block updates
_THREADS = 256
_INCLUDES = (SCALAR_SOURCE,)
Types = tuple[tuple[str, str], ...]  # operand or result -> C type of its elements


class _Update:
    """What one rule reads and writes: by element, and once for a parameter."""

    def __init__(
        self, op_type: str, update: Update, attrs: Mapping[str, Any], types: Types
    ) -> None:
        self.op_type, self.types, self.own = op_type, dict(types), update.own
        results = update.results(attrs, np.float32, own_read=True)
        totals = update.totals(attrs, np.float32, own_read=True)
        used = [name for name in update.operands if name in self.types]
        self.single = [*(name for name in used if name in update.scalars), *totals]
        self.elements = [name for name in used if name not in self.single]
        self.skips = _SKIP in self.types
        operands = {n: Value(n, "float") for n in (*update.operands, *self.own, *totals)}
        self._ahead = CudaWriter(operands, "once_")
        self._inside = Inside(operands, self.elements, self._ahead)
        results = {n: r for n, r in results.items() if n in self.types}
        powers = [name for name in results if name.removesuffix("_out") in self.single]
        self.results = {n: r for n, r in results.items() if n not in powers}
        self.powers = {n: results[n] for n in powers}
        if _MASTER in self.types:
            self.results["master_param_out"] = self.results["param_out"]
        self.lanes = 16 // max(_BYTES[self.types[n]] for n in (*self._loaded(), *self.results))
        self._written = {n: self._inside.number(r, "float") for n, r in self.results.items()}
        self._advanced = {n: self._ahead.number(r, "float") for n, r in self.powers.items()}
        summed = arguments([*totals.values()])
        loads = {n: self._held(n) for n in self.elements if n in summed}
        self.totals = Totals(totals, operands, loads, self.types) if totals else None
        self.types |= dict.fromkeys(totals, "float")
        self.constants = [*self._ahead.constants, *self._inside.constants]
        self.numbers = [c.value for c in self.constants]

    def _loaded(self) -> list[str]:
        """The arrays that are read element by element; a master is read in the parameter's place."""
        names = [self._held(n) for n in self.elements]
        return [*names, "param"] if self.skips and _MASTER in self.types else names

    def _held(self, name: str) -> str:
        return _MASTER if name == "param" and _MASTER in self.types else name

    @property
    def arrays(self) -> list[str]:
        """All that lies in memory, in the order of the kernels' pointers."""
        flag = [_SKIP] if self.skips else []
        return list(
            dict.fromkeys(
                [*self._loaded(), *self.results, *self.single, *self.powers, *flag]
            )
        )  # fmt: skip

    @property
    def aligned(self) -> list[str]:
        """What vectors are loaded from and stored to."""
        return [*self._loaded(), *self.results]

    def _pointer(self, name: str) -> str:
        written = name in self.results or name in self.powers
        return f"{'' if written else 'const '}{self.types[name]}*"

    def _numbers(self) -> tuple[tuple[str, str], ...]:
        """The parameters of kernels that stand for numbers in the rule."""
        return tuple((c.kind, c.name) for c in self.constants)

    def _scalars(self) -> list[str]:
        lines = [f"const float {n} = wide(*at_{n});" for n in self.single]
        if self.skips:
            lines.append(f"const bool skip = *at_{_SKIP};")
        return lines + self._ahead.lines

    def _at(self, lanes: int) -> str:
        """The text that updates ``lanes`` elements from ``i`` on."""
        load = [
            f"const Vec<{self.types[n]}, {lanes}> v_{n} = load_vec<{lanes}>(at_{n} + i);"
            for n in self._loaded()
        ]
        make = [f"Vec<{self.types[n]}, {lanes}> m_{n};" for n in self.results]
        reads = [f"const float {n} = wide(v_{self._held(n)}.at[l]);" for n in self.elements]
        stores = []
        for n, text in self._written.items():
            new = f"element<{self.types[n]}>({text})"
            either = f"skip ? v_{n.removesuffix('_out')}.at[l] : {new}"
            stores.append(f"m_{n}.at[l] = {either if self.skips else new};")
        store = [f"store_vec<{lanes}>(at_{n} + i, m_{n});" for n in self.results]
        loop = [*reads, *self._inside.lines, *stores]
        inner = "\n      ".join(loop)
        return "\n    ".join([
            *load, *make, "#pragma unroll", f"for (int l = 0; l < {lanes}; l++) {{\n      {inner}\n    }}",
            *store,
        ])  # fmt: skip

    def _loops(self, at: Callable[[int], str]) -> str:
        """Go through the elements ``begin`` to ``end``, in vectors if ``vectors``."""
        lanes = self.lanes
        return f"""
  const long long whole = vectors ? begin + (end - begin) / {lanes} * {lanes} : begin;
  for (long long i = begin + threadIdx.x * {lanes}; i < whole; i += blockDim.x * {lanes}) {{
    {at(lanes)}
  }}
  for (long long i = whole + threadIdx.x; i < end; i += blockDim.x) {{
    {at(1)}
  }}"""

    def _advance(self) -> str:
        lines = self._scalars()
        for n, text in self._advanced.items():
            new = f"element<{self.types[n]}>({text})"
            if self.skips:
                new = f"skip ? *at_{n.removesuffix('_out')} : {new}"
            lines.append(f"*at_{n} = {new};")
        return "\n  ".join(lines)

    def alone(self) -> tuple[CudaKernel, CudaKernel | None]:
        """Return the kernel that updates one parameter, and the one that advances its powers."""
        pointers = tuple((self._pointer(n), f"at_{n}") for n in self.arrays)
        own = (*(("float", n) for n in self.own), *self._numbers())
        counts = (("long long", "size"), ("int", "vectors"))
        body = f"""
  const long long begin = (long long)blockIdx.x * {_CHUNK}, end = min(begin + {_CHUNK}, size);
  {" ".join(self._scalars())}{self._loops(self._at)}"""
        update = CudaKernel(self.op_type, (*pointers, *own, *counts), body, _INCLUDES, "", _THREADS)
        if not self.powers:
            return update, None
        text = f"  if (thread_index()) return;\n  {self._advance()}"
        return update, CudaKernel(
            f"{self.op_type}_powers", (*pointers, *own), text, _INCLUDES, "", _THREADS
        )

    def together(self) -> tuple[CudaKernel, CudaKernel | None]:
        """Return the same for many: ``table`` has a line of addresses for each, then size and alignment."""
        head = (("const long long*", "table"), ("const float*", "own"), *self._numbers())
        scalars = " ".join(self._scalars())
        body = f"{self._chunk()}\n  {scalars}{self._loops(self._at)}"
        name = FUSED[self.op_type]
        chunks = (("const int*", "chunks"),)
        update = CudaKernel(name, (*head, *chunks), body, _INCLUDES, "", _THREADS)
        if not self.powers:
            return update, None
        text = f"""
  const long long k = thread_index();
  if (k >= count) return;
  {self._member()}
  {self._advance()}"""
        count = (("int", "count"),)
        return update, CudaKernel(f"{name}_powers", (*head, *count), text, _INCLUDES, "", _THREADS)

    def ahead(self) -> tuple[CudaKernel, CudaKernel]:
        """Return the kernels that sum what the update needs of many parameters, by chunk and over chunks."""
        assert self.totals is not None
        name, arrays = FUSED[self.op_type], self.arrays
        once = [n for n in self.single if n not in self.totals.names]
        scalars = [f"const float {n} = wide(*at_{n});" for n in once]
        first = arrays.index(self.totals.names[0])
        return (
            self.totals.by_chunk(name, self._chunk(), scalars, self._loops, _THREADS),
            self.totals.over_chunks(name, len(arrays) + 2, first, _THREADS),
        )

    def _member(self) -> str:
        """Read the ``k``-th line of the table."""
        line = [
            f"{self._pointer(n)} at_{n} = ({self._pointer(n)})line[{k}];"
            for k, n in enumerate(self.arrays)
        ]
        line += [
            f"const float {n} = own[k * {len(self.own)} + {j}];" for j, n in enumerate(self.own)
        ]
        at = f"const long long* line = table + k * {len(self.arrays) + 2};"
        return f"{at}\n  {' '.join(line)}"

    def _chunk(self) -> str:
        """Read which parameter and which of its elements are the block's."""
        width = len(self.arrays)
        return f"""
  const long long k = chunks[2 * blockIdx.x];
  {self._member()}
  const bool vectors = line[{width + 1}];
  const long long begin = (long long)chunks[2 * blockIdx.x + 1] * {_CHUNK};
  const long long end = min(begin + {_CHUNK}, line[{width}]);"""


_BYTES = {"f16": 2, "bf16": 2, "float": 4, "bool": 1}
_updates: dict[tuple[Any, ...], _Update] = {}


def update_of(op_type: str, types: Types, attrs: Mapping[str, Any]) -> _Update:
    """Return what a rule makes of attributes and element types; the same ones are made once."""
    key = op_type, types, repr(attrs)
    if key not in _updates:
        _updates[key] = _Update(op_type, UPDATES[op_type], attrs, types)
    return _updates[key]


def _used(dev: Device, op_type: str, arrays: Arrays, attrs: Mapping[str, Any]) -> Arrays:
    assert dev.runtime is not None
    results = UPDATES[op_type].results(attrs, np.float32, own_read=True)
    totals = UPDATES[op_type].totals(attrs, np.float32, own_read=True)
    return in_use(results, totals, arrays, dev.runtime.address)


def _types(arrays: Mapping[str, Any]) -> Types:
    return tuple((name, c_type(a.dtype)) for name, a in arrays.items() if a is not None)


def _split(op_type: str, attrs: Mapping[str, Any]) -> tuple[dict[str, Any], dict[str, Any]]:
    """Return the attributes that a rule is written for, and those that are a parameter's own."""
    own = UPDATES[op_type].own
    return {n: v for n, v in attrs.items() if n not in own}, {n: attrs[n] for n in own}


def _alone(op_type: str) -> Callable[..., list[Step]]:
    """Return what binds the update of one parameter."""

    def bind(dev: Device, arrays: Arrays, attrs: Mapping[str, Any]) -> list[Step]:
        shared, own = _split(op_type, attrs)
        arrays = _used(dev, op_type, arrays, shared)
        update = update_of(op_type, _types(arrays), shared)
        if update.totals is not None:
            return _launches(dev, update, [(arrays, [float(number) for number in own.values()])])
        kernel, powers = update.alone()
        size = arrays["param"].size
        words = [*(arrays[n] for n in update.arrays), *own.values(), *update.numbers]
        vectors = _aligned(dev, update, arrays)
        steps = [launch(dev, kernel, -(-size // _CHUNK), [*words, size, vectors], _THREADS)]
        if powers is not None:
            steps.append(launch(dev, powers, 1, words, 1))
        return steps

    return bind


def _aligned(dev: Device, update: _Update, arrays: Mapping[str, Any]) -> bool:
    lanes = update.lanes
    return all(on_boundary(dev, arrays[n], lanes * arrays[n].itemsize) for n in update.aligned)


def _together(op_type: str) -> Callable[..., list[Step]]:
    """Return what binds the updates of many parameters: one launch for each combination of element types."""

    def bind(dev: Device, columns: Arrays, attrs: Mapping[str, Any]) -> list[Step]:
        shared, own = _split(op_type, attrs)
        used = [(n, column) for n, column in columns.items() if column]
        groups: dict[Types, list[tuple[dict[str, Any], list[float]]]] = {}
        for k in range(len(columns["param"])):
            arrays = _used(dev, op_type, {name: column[k] for name, column in used}, shared)
            numbers = [float(values[k]) for values in own.values()]
            groups.setdefault(_types(arrays), []).append((arrays, numbers))
        steps: list[Step] = []
        for types, members in groups.items():
            steps += _launches(dev, update_of(op_type, types, shared), members)
        return steps

    return bind


def _launches(
    dev: Device, update: _Update, members: Sequence[tuple[dict[str, Any], list[float]]]
) -> list[Step]:
    assert dev.runtime is not None
    address = dev.runtime.address
    lines, chunks, starts = [], [], [0]
    totals = () if update.totals is None else update.totals.names
    sums = dev.scratch((len(members), len(totals)), np.float32)
    for k, (operands, _) in enumerate(members):
        arrays = {**operands, **{name: sums[k, t : t + 1] for t, name in enumerate(totals)}}
        size = arrays["param"].size
        addresses = [address(arrays[n]) for n in update.arrays]
        lines.append([*addresses, size, _aligned(dev, update, arrays)])
        chunks += [(k, c) for c in range(-(-size // _CHUNK))]
        starts.append(len(chunks))
    table = _constant(dev, np.array(lines, np.int64))
    own = _constant(dev, np.array([n for _, n in members], np.float32)) if update.own else None
    alive = [arrays for arrays, _ in members]
    kernel, powers = update.together()
    steps: list[Step] = []
    if chunks:
        places = _constant(dev, np.array(chunks, np.int32))
        if update.totals is not None:
            parts = dev.scratch((len(chunks), len(totals)), np.float32)
            by_chunk, over_chunks = update.ahead()
            words = [table, own, *update.totals.numbers, places, parts]
            steps.append(Holding(launch(dev, by_chunk, len(chunks), words, _THREADS), alive))
            words = [table, _constant(dev, np.array(starts, np.int32)), parts]
            steps.append(Holding(launch(dev, over_chunks, len(members), words, _THREADS), sums))
        call = launch(dev, kernel, len(chunks), [table, own, *update.numbers, places], _THREADS)
        steps.append(Holding(call, alive))
    if powers is not None:
        blocks = -(-len(members) // _THREADS)
        call = launch(dev, powers, blocks, [table, own, *update.numbers, len(members)], _THREADS)
        steps.append(Holding(call, alive))
    return steps


def _constant(dev: Device, value: np.ndarray) -> Any:
    """Return numbers in device memory of their own."""
    assert dev.runtime is not None
    dev.tied = True
    array = device_array(dev.runtime, value.shape, value.dtype)
    upload(dev.runtime, array, value)
    return array


class Holding:
    """A launch that knows arrays by their addresses alone, and keeps them."""

    captured = True

    def __init__(self, call: Step, arrays: Any) -> None:
        self._call, self._arrays = call, arrays

    def __call__(self) -> None:
        self._call()


def _takes(node: Node) -> bool:
    """Whatever floats up to four bytes, and the flag that skips an update."""
    kinds = (VarType.FP16, VarType.BF16, VarType.FP32, VarType.BOOL)
    return all(v.spec.dtype in kinds for v in (*node.reads(), *node.writes()))


for _op_type, _fused in FUSED.items():
    add_kernel(_op_type, "cuda", _alone(_op_type), _takes, low=True)
    add_kernel(_fused, "cuda", _together(_op_type), _takes, low=True)
