"""Rows picked by index, and rows added up by index in the order of their positions: the same sum every time.

An index outside the rows is not followed: what it would have picked is NaN (-1 among integers), and what it
would have added to is left alone. The host does not see indices on a GPU: kernels assert that they are rows.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from ....graph.ops.formula import outside
from ....graph.ops.operands import Array
from ...codegen.cuda_source import c_type
from ...cuda.kernel import CudaKernel
from ...cuda.runtime import Step
from ...device.device import Device
from .copies import MOST, UNITS, divisor, filled, moved, widest
from .support import enough_blocks, launch

_TILE, _MOST_TILES = 1024, 128  # positions that one block sorts, unless there were too many blocks
_BITS = 8  # of a number, that one pass sorts by
_DIGITS = 1 << _BITS
_WARPS = _DIGITS // 32  # of a block that sorts: a thread for each digit
_RUN = 64  # rows of one sum that are added up ahead of the others
NO_PADDING = -1


# parameters of a kernel that calls ``refuse`` of ``assert.cuh``
REFUSAL = (("long long*", "word"), ("volatile long long*", "noted"), ("int", "assertion"))


def inside(dev: Device, index: Array, limit: int, problem: str) -> list[Step]:
    """Return the call that asserts 0 <= index < ``limit``; ``problem`` has ``{}`` for an index that is not."""
    if not index.size:
        return []
    steps = []
    if not index.flags.c_contiguous:
        ordered = dev.scratch(index.shape, index.dtype)
        steps, index = moved(dev, ordered, index), ordered
    kind = c_type(index.dtype)
    parameters = (
        (f"const {kind}*", "index"),
        *REFUSAL,
        ("long long", "count"),
        ("long long", "limit"),
    )
    body = """
  for (long long i = thread_index(); i < count; i += thread_count())
    if (index[i] < 0 || index[i] >= limit) refuse(word, noted, assertion, index[i]);"""
    kernel = CudaKernel(f"inside_{kind}".replace(" ", "_"), parameters, body, ("assert.cuh",))
    arguments = [index, *dev.assertion(problem), index.size, limit]
    return [*steps, launch(dev, kernel, enough_blocks(dev, index.size), arguments)]


def rows_of(dev: Device, op: str, index: Array, rows: int, of: str = "rows") -> list[Step]:
    """Return the call that asserts of each index that it is one of ``rows``, which the error calls ``of``."""
    return inside(dev, index, rows, outside(op, rows, of=of))


def picked(
    dev: Device,
    source: Array,
    index: Array,
    out: Array,
    padding: int = NO_PADDING,
    op: str = "",
) -> list[Step]:
    """Return the copy of the rows that ``index`` names; ``padding`` is a row that counts as zeros.

    ``source`` is [rows, ...], ``index`` a list, ``out`` [len(index), ...]; all lie in order. With ``op``, which
    the error names, it is asserted that each index is a row.
    """
    if not out.size:
        return []
    per = out.size // index.size
    if out.size >= MOST:
        half = index.size // 2
        return [
            *picked(dev, source, index[:half], out[:half], padding, op),
            *picked(dev, source, index[half:], out[half:], padding, op),
        ]
    width = widest(dev, out.itemsize, per, [], [source, out])
    units = per * out.itemsize // width
    unit, kind = UNITS[width], c_type(index.dtype)
    parameters = [(f"{unit}*", "out"), (f"const {unit}*", "source"), (f"const {kind}*", "index")]
    parameters += [("unsigned", n) for n in ("count", "units", "magic", "shift")]
    parameters += [("long long", "rows"), ("long long", "padding")]
    parameters += REFUSAL if op else ()
    refuse = "refuse(word, noted, assertion, row)" if op else ""
    body = f"""
  for (unsigned i = thread_index(); i < count; i += thread_count()) {{
    const unsigned k = over(i, magic, shift);
    const long long row = index[k];
    if (row < 0 || row >= rows) {{
      out[i] = spread<{unit}>(OUTSIDE);
      {refuse};
    }} else if (row == padding) out[i] = spread<{unit}>(0);
    else out[i] = source[row * units + (i - k * units)];
  }}"""
    name, includes = f"pick_{width}_{index.itemsize}", ("index.cuh", "assert.cuh")
    kernel = CudaKernel(name, tuple(parameters), body, includes)
    words = [index.size * units, units, *divisor(units), source.shape[0], padding]
    words += dev.assertion(outside(op, source.shape[0])) if op else []
    blocks = enough_blocks(dev, index.size * units)
    return [launch(dev, kernel, blocks, [out, source, index, *words])]


class Sums:
    """Positions of a list sorted by the row that they name, to add up what belongs to each row.

    ``index`` may name rows outside 0 .. ``rows`` - 1, and ``padding``: these positions belong to none. Sorting
    is stable (by digits of eight bits, from the last), so sums have one order.
    """

    def __init__(self, dev: Device, index: Array, rows: int, padding: int = NO_PADDING) -> None:
        self._dev, self._rows, self._size = dev, rows, index.size
        self.steps: list[Step] = []
        if not self._size:
            return
        self._keys, keys = (dev.scratch((self._size,), np.int32) for _ in range(2))
        self._places, places = (dev.scratch((self._size,), np.int32) for _ in range(2))
        self._run(
            _number(index.dtype), [index, self._keys, self._places, rows, padding, self._size]
        )
        rounds = -(-self._size // (_MOST_TILES * _DIGITS))
        tile = max(_TILE, rounds * _DIGITS)
        tiles = -(-self._size // tile)
        counts = dev.scratch((_DIGITS * tiles,), np.int32)
        for shift in range(0, max(int(rows).bit_length(), 1), _BITS):
            words = [shift, self._size, tile]
            self.steps.append(launch(dev, _COUNT, tiles, [self._keys, counts, *words]))
            self.steps.append(launch(dev, _SCAN, 1, [counts, _DIGITS * tiles]))
            arrays = [self._keys, self._places, keys, places, counts]
            self.steps.append(launch(dev, _PLACE, tiles, [*arrays, *words]))
            self._keys, keys, self._places, places = keys, self._keys, places, self._places
        self._ends = self._find_ends()

    def _find_ends(self) -> Array:
        """Return between which sorted positions the terms of each sum stand [sums, 2], once steps have run."""
        ends = self._dev.scratch((self._rows, 2), np.int32)
        self.steps += filled(self._dev, ends, 0)
        self._run(_ENDS, [self._keys, ends, self._rows, self._size])
        return ends

    def _run(self, kernel: CudaKernel, arguments: list[Any]) -> None:
        blocks = enough_blocks(self._dev, self._size)
        self.steps.append(launch(self._dev, kernel, blocks, arguments))

    def into(
        self, target: Array, source: Array, *, keep: bool = False, last: bool = False
    ) -> list[Step]:
        """Return the calls that give each row of ``target`` the sum of its rows of ``source``, or the last.

        A row without any becomes zero, or (``keep``) stays as it is.
        """
        if not target.size:
            return []
        if not self._size:
            return [] if keep else filled(self._dev, target, 0)
        dev, rows = self._dev, len(self._ends)
        per = target.size // rows
        lanes = max(1, 16 // target.itemsize)
        if widest(dev, target.itemsize, per, [], [target, source]) < 16:
            lanes = 1
        units = per // lanes
        kind = c_type(target.dtype)
        steps = []
        ahead = None
        runs = self._size // _RUN
        if runs and not last:
            ahead, count = dev.scratch((runs, per), _sum_type(target.dtype)), runs * units
            words = [count, units, *divisor(units), self._rows]
            arguments = [ahead, source, self._keys, self._places, *words]
            blocks = enough_blocks(dev, count)
            steps.append(launch(dev, _runs(kind, lanes), blocks, arguments))
        arguments = [target, source, ahead, self._places, self._ends, rows, units]
        blocks = enough_blocks(dev, rows * units)
        return [*steps, launch(dev, _sums(kind, lanes, keep, last), blocks, arguments)]


class MergedSums(Sums):
    """Sums for those of ``rows`` rows that ``index`` names, behind each other, and for none behind them.

    ``numbers`` (int64, as many as ``index``) get these rows in order, and ``rows`` behind them.
    """

    def __init__(self, dev: Device, index: Array, rows: int, numbers: Array) -> None:
        self._numbers = numbers
        super().__init__(dev, index, rows)

    def _find_ends(self) -> Array:
        group = self._dev.scratch((self._size,), np.int32)
        ends = self._dev.scratch((self._size, 2), np.int32)
        arguments = [self._keys, group, ends, self._numbers, self._rows, self._size]
        self._run(_FIRSTS, arguments)
        self.steps.append(launch(self._dev, _SCAN, 1, [group, self._size]))
        self._run(_GROUPS, arguments)
        return ends


def _sum_type(dtype: Any) -> Any:
    """Return the element type of sums: single precision for 16-bit floats."""
    if dtype.kind in "iub":
        return np.dtype(np.int64)
    return np.dtype(np.float64 if dtype == np.float64 else np.float32)


def _number(dtype: Any) -> CudaKernel:
    """Positions, and the row that each names; ``rows`` stands for none."""
    kind = c_type(dtype)
    return CudaKernel(
        f"number_{dtype.itemsize}",
        ((f"const {kind}*", "index"), ("int*", "keys"), ("int*", "places"), ("int", "rows"),
         ("int", "padding"), ("int", "count")),
        """
  for (int i = thread_index(); i < count; i += thread_count()) {
    const long long row = index[i];
    keys[i] = row < 0 || row >= rows || row == padding ? rows : (int)row;
    places[i] = i;
  }""",
    )  # fmt: skip


_COUNT = CudaKernel(
    "sort_count",
    (("const int*", "keys"), ("int*", "counts"), ("int", "shift"), ("int", "count"),
     ("int", "tile")),
    f"""
  __shared__ int found[{_DIGITS}];
  found[threadIdx.x] = 0;
  __syncthreads();
  const int first = blockIdx.x * tile, end = min(first + tile, count);
  for (int i = first + threadIdx.x; i < end; i += {_DIGITS})
    atomicAdd(&found[keys[i] >> shift & {_DIGITS - 1}], 1);
  __syncthreads();
  counts[threadIdx.x * gridDim.x + blockIdx.x] = found[threadIdx.x];""",
    block=_DIGITS,
)  # fmt: skip

# Each count becomes the sum of those before it: eight to a thread, then over a warp, then over the warps.
_SCAN = CudaKernel(
    "sort_scan",
    (("int*", "counts"), ("int", "count")),
    f"""
  __shared__ int sums[{_WARPS}];
  const int t = threadIdx.x, lane = t % 32, warp = t / 32;
  int carry = 0;
  for (int start = 0; start < count; start += {8 * _DIGITS}) {{
    const int first = start + t * 8;
    int held[8], sum = 0;
    #pragma unroll
    for (int k = 0; k < 8; k++) {{
      held[k] = first + k < count ? counts[first + k] : 0;
      sum += held[k];
    }}
    int through = sum;
    for (int by = 1; by < 32; by *= 2) {{
      const int other = __shfl_sync(0xffffffffu, through, (lane - by) & 31);
      if (lane >= by) through += other;
    }}
    if (lane == 31) sums[warp] = through;
    __syncthreads();
    int at = carry + through - sum;
    for (int w = 0; w < {_WARPS}; w++) {{
      if (w < warp) at += sums[w];
      carry += sums[w];
    }}
    #pragma unroll
    for (int k = 0; k < 8; k++) {{
      if (first + k < count) counts[first + k] = at;
      at += held[k];
    }}
    __syncthreads();
  }}""",
    block=_DIGITS,
)

# Positions go round by round, one a thread; within a round a position comes behind all before it that have
# its digit: those of warps before, then those of lanes before.
_PLACE = CudaKernel(
    "sort_place",
    (("const int*", "keys"), ("const int*", "places"), ("int*", "keys_out"), ("int*", "places_out"),
     ("const int*", "counts"), ("int", "shift"), ("int", "count"), ("int", "tile")),
    f"""
  __shared__ int found[{_WARPS}][{_DIGITS}];
  const int t = threadIdx.x, lane = t % 32, warp = t / 32;
  int next = counts[t * gridDim.x + blockIdx.x];  // where digit t goes
  const int first = blockIdx.x * tile, end = min(first + tile, count);
  for (int start = first; start < end; start += {_DIGITS}) {{
    const int i = start + t;
    const int key = i < end ? keys[i] : 0;
    const int digit = i < end ? key >> shift & {_DIGITS - 1} : {_DIGITS};
    unsigned same = 0xffffffffu;
    #pragma unroll
    for (int bit = 0; bit <= {_BITS}; bit++) {{
      const bool set = digit >> bit & 1;
      const unsigned votes = __ballot_sync(0xffffffffu, set);
      same &= set ? votes : ~votes;
    }}
    const int before = __popc(same & ((1u << lane) - 1));
    for (int w = 0; w < {_WARPS}; w++) found[w][t] = 0;
    __syncthreads();
    if (i < end && before == 0) found[warp][digit] = __popc(same);
    __syncthreads();
    for (int w = 0; w < {_WARPS}; w++) {{
      const int here = found[w][t];
      found[w][t] = next;
      next += here;
    }}
    __syncthreads();
    if (i < end) {{
      const int to = found[warp][digit] + before;
      keys_out[to] = key;
      places_out[to] = places[i];
    }}
    __syncthreads();
  }}""",
    block=_DIGITS,
)  # fmt: skip

_ENDS = CudaKernel(
    "sort_ends",
    (("const int*", "keys"), ("int*", "ends"), ("int", "rows"), ("int", "count")),
    """
  for (int i = thread_index(); i < count; i += thread_count()) {
    const int key = keys[i];
    if (key >= rows) continue;
    if (i == 0 || keys[i - 1] != key) ends[2 * key] = i;
    if (i == count - 1 || keys[i + 1] != key) ends[2 * key + 1] = i + 1;
  }""",
)

# Whether a sorted position is the first of its row: its sum over those before is the number of the row's group.
_FIRSTS = CudaKernel(
    "sort_firsts",
    (("const int*", "keys"), ("int*", "group"), ("int*", "ends"), ("long long*", "numbers"),
     ("int", "rows"), ("int", "count")),
    """
  for (int i = thread_index(); i < count; i += thread_count()) {
    group[i] = keys[i] < rows && (i == 0 || keys[i - 1] != keys[i]);
    ends[2 * i] = ends[2 * i + 1] = 0;
    numbers[i] = rows;
  }""",
)  # fmt: skip

_GROUPS = CudaKernel(
    "sort_groups",
    (("const int*", "keys"), ("int*", "group"), ("int*", "ends"), ("long long*", "numbers"),
     ("int", "rows"), ("int", "count")),
    """
  for (int i = thread_index(); i < count; i += thread_count()) {
    const int key = keys[i];
    if (key >= rows) continue;
    const bool first = i == 0 || keys[i - 1] != key;
    const int at = first ? group[i] : group[i] - 1;
    if (first) {
      numbers[at] = key;
      ends[2 * at] = i;
    }
    if (i == count - 1 || keys[i + 1] != key) ends[2 * at + 1] = i + 1;
  }""",
)  # fmt: skip


def _c_sum(kind: str) -> str:
    return {"double": "double", "float": "float", "f16": "float", "bf16": "float"}.get(
        kind, "long long"
    )


def _runs(kind: str, lanes: int) -> CudaKernel:
    """Sums of those whole runs of sorted positions that belong to one row."""
    many = _c_sum(kind)
    body = f"""
  for (unsigned i = thread_index(); i < count; i += thread_count()) {{
    const unsigned run = over(i, magic, shift), u = i - run * units;
    const int row = keys[run * {_RUN}];
    if (row >= rows || row != keys[run * {_RUN} + {_RUN - 1}]) continue;
    {many} sum[{lanes}] = {{}};
    #pragma unroll 8
    for (int k = 0; k < {_RUN}; k++) {{
      const Vec<{kind}, {lanes}> v = load_vec<{lanes}>(
          source + ((long long)places[run * {_RUN} + k] * units + u) * {lanes});
      for (int l = 0; l < {lanes}; l++) sum[l] += wide(v.at[l]);
    }}
    for (int l = 0; l < {lanes}; l++) ahead[(long long)i * {lanes} + l] = sum[l];
  }}"""
    parameters = [(f"{many}*", "ahead"), (f"const {kind}*", "source"), ("const int*", "keys")]
    parameters += [("const int*", "places")]
    parameters += [("unsigned", n) for n in ("count", "units", "magic", "shift")]
    parameters += [("int", "rows")]
    name = f"sum_runs_{kind}_{lanes}".replace(" ", "_")
    return CudaKernel(name, tuple(parameters), body, ("index.cuh",))


def _sums(kind: str, lanes: int, keep: bool, last: bool) -> CudaKernel:
    many = _c_sum(kind)
    add = f"""
    for (int p = first; p < end;) {{
      if (p % {_RUN} == 0 && p + {_RUN} <= end) {{
        const {many}* done = ahead + ((long long)(p / {_RUN}) * units + u) * {lanes};
        for (int l = 0; l < {lanes}; l++) sum[l] += done[l];
        p += {_RUN};
      }} else {{
        const Vec<{kind}, {lanes}> v = load_vec<{lanes}>(
            source + ((long long)places[p] * units + u) * {lanes});
        for (int l = 0; l < {lanes}; l++) sum[l] += wide(v.at[l]);
        p++;
      }}
    }}"""
    if last:
        add = f"""
    if (first < end) {{
      const Vec<{kind}, {lanes}> v = load_vec<{lanes}>(
          source + ((long long)places[end - 1] * units + u) * {lanes});
      for (int l = 0; l < {lanes}; l++) sum[l] = wide(v.at[l]);
    }}"""
    body = f"""
  long long row = thread_index() / units;
  long long u = thread_index() % units;
  const long long rows_on = thread_count() / units, units_on = thread_count() % units;
  for (; row < rows; row += rows_on, u += units_on) {{
    if (u >= units) {{ u -= units; row++; if (row >= rows) break; }}
    const int first = ends[2 * row], end = ends[2 * row + 1];
    {"if (first == end) continue;" if keep else ""}
    {many} sum[{lanes}] = {{}};{add}
    Vec<{kind}, {lanes}> made;
    for (int l = 0; l < {lanes}; l++) made.at[l] = element<{kind}>(sum[l]);
    store_vec<{lanes}>(target + (row * units + u) * {lanes}, made);
  }}"""
    parameters = [(f"{kind}*", "target"), (f"const {kind}*", "source"), (f"const {many}*", "ahead")]
    parameters += [("const int*", "places"), ("const int*", "ends")]
    parameters += [("int", "rows"), ("int", "units")]
    how = f"{'keep' if keep else 'all'}_{'last' if last else 'sum'}"
    name = f"sum_rows_{kind}_{lanes}_{how}".replace(" ", "_")
    return CudaKernel(name, tuple(parameters), body)
