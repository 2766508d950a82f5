"""Optimizer updates: one pass over all that an update reads and writes; many parameters are one launch.

What depends on no element (rates, corrections, powers) is computed once a thread, from numbers that are read in
device memory when the kernel runs.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

import numpy as np

from ....graph.ops.fused_optimize import FUSED
from ....graph.ops.pointwise import arguments
from ....graph.ops.update import Update
from ....strategies.types import VarType
from ...codegen import cuda_launches as gpu
from ...codegen.cuda_source import SCALAR_SOURCE, CudaWriter, Value, c_type
from ...cuda.runtime import Step
from ...device.device import Device
from ..array.optimize import MASTER_OPERAND as _MASTER
from ..array.optimize import SKIP_OPERAND as _SKIP
from ..array.optimize import UPDATES, Arrays, add_kernel, in_use
from ..registry import of_types
from .support import constant, on_boundary
from .update_totals import Inside, Totals, numbers_of

_CHUNK = 8192  # elements that a block updates
_INCLUDES, _SUMS = (SCALAR_SOURCE,), (SCALAR_SOURCE, "reduce.cuh")
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
        self._constants = numbers_of(self._ahead, self._inside)

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

    @staticmethod
    def _scalar(name: str) -> str:
        return f"const float {name} = wide(*at_{name});"

    def _scalars(self) -> list[str]:
        lines = [self._scalar(n) for n in self.single]
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

    def alone(self, dev: Device, arrays: Mapping[str, Any], own: Mapping[str, float]) -> list[Step]:
        """Return the launch that updates one parameter, and the one that advances its powers."""
        size = arrays["param"].size
        arguments = [
            *((f"{self._pointer(n)} at_{n}", arrays[n]) for n in self.arrays),
            *((f"float {n}", own[n]) for n in self.own),
            *self._constants,
        ]
        counts = [*gpu.longs(size=size), *gpu.ints(vectors=self._vectors(dev, arrays))]
        body = f"""
  const long long begin = (long long)blockIdx.x * {_CHUNK}, end = min(begin + {_CHUNK}, size);
  {" ".join(self._scalars())}{self._loops(self._at)}"""
        blocks = -(-size // _CHUNK)
        steps = [gpu.run(dev, self.op_type, body, [*arguments, *counts], blocks, _INCLUDES)]
        if self.powers:
            name, text = f"{self.op_type}_powers", f"  {self._advance()}"
            steps.append(gpu.run(dev, name, text, arguments, 1, _INCLUDES, 1))
        return steps

    def together(
        self, dev: Device, members: Sequence[tuple[dict[str, Any], list[float]]]
    ) -> list[Step]:
        """Return the same for many: ``table`` has a line of addresses for each, then size and alignment.

        ``members`` are each parameter's arrays, and the numbers that are its own.
        """
        address, name = dev.cuda.address, FUSED[self.op_type]
        lines, chunks, starts = [], [], [0]
        totals = () if self.totals is None else self.totals.names
        sums = dev.scratch((len(members), len(totals)), np.float32)
        for k, (operands, _) in enumerate(members):
            arrays = {**operands, **{total: sums[k, t : t + 1] for t, total in enumerate(totals)}}
            size = arrays["param"].size
            addresses = [address(arrays[n]) for n in self.arrays]
            lines.append([*addresses, size, self._vectors(dev, arrays)])
            chunks += [(k, c) for c in range(-(-size // _CHUNK))]
            starts.append(len(chunks))
        own = constant(dev, np.array([n for _, n in members], np.float32)) if self.own else None
        table = ("const long long* table", constant(dev, np.array(lines, np.int64)))
        head = [table, ("const float* own", own)]
        steps: list[Step] = []
        if chunks:
            places = ("const int* chunks", constant(dev, np.array(chunks, np.int32)))
            if self.totals is not None:
                begins = ("const int* starts", constant(dev, np.array(starts, np.int32)))
                parts = dev.scratch((len(chunks), len(totals)), np.float32)
                once = [self._scalar(n) for n in self.single if n not in totals]
                text = self.totals.by_chunk(self._chunk(), once, self._loops)
                arguments = [*head, *self.totals.constants, places, *gpu.written(parts=parts)]
                steps.append(gpu.run(dev, f"{name}_parts", text, arguments, len(chunks), _SUMS))
                text = self.totals.over_chunks(len(self.arrays) + 2, self.arrays.index(totals[0]))
                arguments = [table, begins, *gpu.read(parts=parts)]
                steps.append(gpu.run(dev, f"{name}_totals", text, arguments, len(members), _SUMS))
            body = f"{self._chunk()}\n  {' '.join(self._scalars())}{self._loops(self._at)}"
            arguments = [*head, *self._constants, places]
            steps.append(gpu.run(dev, name, body, arguments, len(chunks), _INCLUDES))
        if self.powers:
            text = f"""
  const long long k = thread_index();
  if (k >= count) return;
  {self._member()}
  {self._advance()}"""
            arguments = [*head, *self._constants, *gpu.ints(count=len(members))]
            blocks = -(-len(members) // gpu.BLOCK)
            steps.append(gpu.run(dev, f"{name}_powers", text, arguments, blocks, _INCLUDES))
        alive = [arrays for arrays, _ in members], sums
        return [Holding(step, alive) for step in steps]

    def _vectors(self, dev: Device, arrays: Mapping[str, Any]) -> bool:
        """Tell whether arrays begin where vectors of ``lanes`` elements may."""
        return all(
            on_boundary(dev, arrays[n], self.lanes * arrays[n].itemsize) for n in self.aligned
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
    """Return the update by a rule for attributes and element types; each is generated once."""
    key = op_type, types, repr(attrs)
    if key not in _updates:
        _updates[key] = _Update(op_type, UPDATES[op_type], attrs, types)
    return _updates[key]


def _used(dev: Device, op_type: str, arrays: Arrays, attrs: Mapping[str, Any]) -> Arrays:
    results = UPDATES[op_type].results(attrs, np.float32, own_read=True)
    totals = UPDATES[op_type].totals(attrs, np.float32, own_read=True)
    return in_use(results, totals, arrays, dev.cuda.address)


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
        numbers = {name: float(number) for name, number in own.items()}
        if update.totals is not None:
            return update.together(dev, [(arrays, [*numbers.values()])])
        return update.alone(dev, arrays, numbers)

    return bind


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
            steps += update_of(op_type, types, shared).together(dev, members)
        return steps

    return bind


class Holding:
    """A launch that knows arrays by their addresses alone, and keeps them."""

    captured = True

    def __init__(self, call: Step, arrays: Any) -> None:
        self._call, self._arrays = call, arrays

    def __call__(self) -> None:
        self._call()


# The flag that skips an update is a bool.
_takes = of_types(VarType.FP16, VarType.BF16, VarType.FP32, VarType.BOOL)
for _op_type, _fused in FUSED.items():
    add_kernel(_op_type, "cuda", _alone(_op_type), _takes, low=True)
    add_kernel(_fused, "cuda", _together(_op_type), _takes, low=True)
