"""Rows picked by index, and rows added up by index in the order of their positions: the same sum every time.

An index outside the rows is not followed: what it would have picked is NaN (-1 among integers), and what it
would have added to is left alone. The host does not see indices on a GPU: kernels assert that they are rows.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from ....graph.ops.formula import outside
from ....graph.ops.operands import Array
from ...codegen.cuda_launches import (
    MOST,
    Argument,
    Maybe,
    divisors,
    each,
    enough_blocks,
    ints,
    longs,
    read,
    refusal,
    run,
    written,
)
from ...codegen.cuda_source import c_type
from ...cuda.runtime import Step
from ...device.device import Device
from .copies import UNITS, filled, in_order, widest

_TILE, _MOST_TILES = 1024, 128  # positions that one block sorts, unless there were too many blocks
_BITS = 8  # of a number, that one pass sorts by
_DIGITS = 1 << _BITS
_WARPS = _DIGITS // 32  # of a block that sorts: a thread for each digit
_RUN = 64  # rows of one sum that are added up ahead of the others
NO_PADDING = -1


def inside(dev: Device, index: Array, limit: int, problem: str) -> list[Step]:
    """Return the call that asserts 0 <= index < ``limit``; ``problem`` has ``{}`` for an index that is not."""
    if not index.size:
        return []
    index, steps = in_order(dev, index)
    body = "if (index[i] < 0 || index[i] >= limit) refuse(word, noted, assertion, index[i]);"
    arguments = [*read(index=index), *refusal(dev, problem), *longs(limit=limit)]
    return [
        *steps,
        each(dev, "inside", body, arguments, index.size, ("assert.cuh",), index="long long"),
    ]


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
    if out.size >= MOST and len(out) > 1:
        half = index.size // 2
        return [
            *picked(dev, source, index[:half], out[:half], padding, op),
            *picked(dev, source, index[half:], out[half:], padding, op),
        ]
    width = widest(dev, out.itemsize, per, [], [source, out])
    units, unit = per * out.itemsize // width, UNITS[width]
    refuse = "refuse(word, noted, assertion, row)" if op else ""
    body = f"""
    const unsigned k = over(i, units_magic, units_shift);
    const long long row = index[k];
    if (row < 0 || row >= rows) {{
      out[i] = spread<{unit}>(OUTSIDE);
      {refuse};
    }} else if (row == padding) out[i] = spread<{unit}>(0);
    else out[i] = source[row * units + (i - k * units)];"""
    arguments = [(f"{unit}* out", out), (f"const {unit}* source", source), *read(index=index)]
    arguments += [*divisors(units=units), *longs(rows=source.shape[0], padding=padding)]
    arguments += refusal(dev, outside(op, source.shape[0])) if op else []
    includes = ("index.cuh", "assert.cuh")
    return [each(dev, "pick", body, arguments, index.size * units, includes)]


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
        sorted_ = written(keys=self._keys, places=self._places)
        self._each(
            "sort_number",
            _NUMBER,
            [*read(index=index), *sorted_, *ints(rows=rows, padding=padding)],
        )
        rounds = -(-self._size // (_MOST_TILES * _DIGITS))
        tile = max(_TILE, rounds * _DIGITS)
        tiles = -(-self._size // tile)
        counts = dev.scratch((_DIGITS * tiles,), np.int32)
        for shift in range(0, max(int(rows).bit_length(), 1), _BITS):
            cut = ints(shift=shift, count=self._size, tile=tile)
            self._sort(
                "sort_count", _COUNT, [*read(keys=self._keys), *written(counts=counts), *cut], tiles
            )
            self._scan(counts)
            before = read(keys=self._keys, places=self._places, counts=counts)
            after = written(keys_out=keys, places_out=places)
            self._sort("sort_place", _PLACE, [*before, *after, *cut], tiles)
            self._keys, keys, self._places, places = keys, self._keys, places, self._places
        self._ends = self._find_ends()

    def _find_ends(self) -> Array:
        """Return between which sorted positions the terms of each sum stand [sums, 2], once steps have run."""
        ends = self._dev.scratch((self._rows, 2), np.int32)
        self.steps += filled(self._dev, ends, 0)
        self._each(
            "sort_ends",
            _ENDS,
            [*read(keys=self._keys), *written(ends=ends), *ints(rows=self._rows)],
        )
        return ends

    def _each(self, name: str, body: str, arguments: Sequence[Argument]) -> None:
        """Add the launch that runs a text for each position."""
        self.steps.append(each(self._dev, name, body, arguments, self._size))

    def _sort(self, name: str, body: str, arguments: Sequence[Argument], blocks: int) -> None:
        """Add the launch of blocks that have a thread for each digit."""
        self.steps.append(run(self._dev, name, body, arguments, blocks, block=_DIGITS))

    def _scan(self, counts: Array) -> None:
        """Add the launch by which each count becomes the sum of those before it."""
        arguments = [*written(counts=counts), *ints(count=counts.size)]
        body = "block_sums_before(counts, count);"
        self.steps.append(run(self._dev, "sort_scan", body, arguments, 1, ("scan.cuh",)))

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
        steps, total, kind = [], _sum_type(target.dtype), c_type(target.dtype)
        ahead = Maybe(None, np.empty(0, total))
        runs = self._size // _RUN
        if runs and not last:
            sums = dev.scratch((runs, per), total)
            ahead = Maybe(sums, sums)
            arguments = [*read(source=source, keys=self._keys, places=self._places)]
            arguments += [*written(ahead=sums), *divisors(units=units), *ints(rows=self._rows)]
            text = _runs(c_type(total), kind, lanes)
            steps = [each(dev, "sum_runs", text, arguments, runs * units, ("index.cuh",))]
        arguments = [*read(source=source, ahead=ahead, places=self._places, ends=self._ends)]
        arguments += [*written(target=target), *ints(rows=rows, units=units)]
        text, blocks = (
            _sums(c_type(total), kind, lanes, keep, last),
            enough_blocks(dev, rows * units),
        )
        return [*steps, run(dev, "sum_rows", text, arguments, blocks)]


class MergedSums(Sums):
    """Sums for the rows, of ``rows``, that ``index`` names: one behind the other, the rest unused.

    ``numbers`` (int64, as many as ``index``) get these rows in order, and ``rows`` behind them.
    """

    def __init__(self, dev: Device, index: Array, rows: int, numbers: Array) -> None:
        self._numbers = numbers
        super().__init__(dev, index, rows)

    def _find_ends(self) -> Array:
        group = self._dev.scratch((self._size,), np.int32)
        ends = self._dev.scratch((self._size, 2), np.int32)
        arguments = written(group=group, ends=ends, numbers=self._numbers)
        arguments += [*read(keys=self._keys), *ints(rows=self._rows)]
        self._each("sort_firsts", _FIRSTS, arguments)
        self._scan(group)
        self._each("sort_groups", _GROUPS, arguments)
        return ends


def _sum_type(dtype: Any) -> Any:
    """Return the element type of sums: single precision for 16-bit floats."""
    if dtype.kind in "iub":
        return np.dtype(np.int64)
    return np.dtype(np.float64 if dtype == np.float64 else np.float32)


# A sorted position's key is the row that it names; ``rows`` stands for none.
_NUMBER = """
    const long long row = index[i];
    keys[i] = row < 0 || row >= rows || row == padding ? rows : (int)row;
    places[i] = i;"""
_COUNT = f"""
  __shared__ int found[{_DIGITS}];
  found[threadIdx.x] = 0;
  __syncthreads();
  const int first = blockIdx.x * tile, end = min(first + tile, count);
  for (int i = first + threadIdx.x; i < end; i += {_DIGITS})
    atomicAdd(&found[keys[i] >> shift & {_DIGITS - 1}], 1);
  __syncthreads();
  counts[threadIdx.x * gridDim.x + blockIdx.x] = found[threadIdx.x];"""

# Positions go round by round, one a thread; within a round a position comes behind all before it that have
# its digit: those of warps before, then those of lanes before.
_PLACE = f"""
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
  }}"""

_ENDS = """
    const int key = keys[i];
    if (key >= rows) continue;
    if (i == 0 || keys[i - 1] != key) ends[2LL * key] = i;
    if (i == count - 1 || keys[i + 1] != key) ends[2LL * key + 1] = i + 1;"""

# Whether a sorted position is the first of its row: its sum over those before is the number of the row's group.
_FIRSTS = """
    group[i] = keys[i] < rows && (i == 0 || keys[i - 1] != keys[i]);
    ends[2 * i] = ends[2 * i + 1] = 0;
    numbers[i] = rows;"""

_GROUPS = """
    const int key = keys[i];
    if (key >= rows) continue;
    const bool first = i == 0 || keys[i - 1] != key;
    const int at = first ? group[i] : group[i] - 1;
    if (first) {
      numbers[at] = key;
      ends[2LL * at] = i;
    }
    if (i == count - 1 || keys[i + 1] != key) ends[2LL * at + 1] = i + 1;"""


def _runs(total: str, kind: str, lanes: int) -> str:
    """Return the text that sums each whole run of sorted positions that belong to one row."""
    return f"""
    const unsigned run = over(i, units_magic, units_shift), u = i - run * units;
    const int row = keys[run * {_RUN}];
    if (row >= rows || row != keys[run * {_RUN} + {_RUN - 1}]) continue;
    {total} sum[{lanes}] = {{}};
    #pragma unroll 8
    for (int k = 0; k < {_RUN}; k++) {{
      const Vec<{kind}, {lanes}> v = load_vec<{lanes}>(
          source + ((long long)places[run * {_RUN} + k] * units + u) * {lanes});
      for (int l = 0; l < {lanes}; l++) sum[l] += wide(v.at[l]);
    }}
    for (int l = 0; l < {lanes}; l++) ahead[(long long)i * {lanes} + l] = sum[l];"""


def _sums(total: str, kind: str, lanes: int, keep: bool, last: bool) -> str:
    """Return the text that gives each row of ``target`` the sum of its positions, or the last of them."""
    add = f"""
    for (int p = first; p < end;) {{
      if (p % {_RUN} == 0 && p + {_RUN} <= end) {{
        const {total}* done = ahead + ((long long)(p / {_RUN}) * units + u) * {lanes};
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
    return f"""
  long long row = thread_index() / units;
  long long u = thread_index() % units;
  const long long rows_on = thread_count() / units, units_on = thread_count() % units;
  for (; row < rows; row += rows_on, u += units_on) {{
    if (u >= units) {{ u -= units; row++; if (row >= rows) break; }}
    const int first = ends[2 * row], end = ends[2 * row + 1];
    {"if (first == end) continue;" if keep else ""}
    {total} sum[{lanes}] = {{}};{add}
    Vec<{kind}, {lanes}> result;
    for (int l = 0; l < {lanes}; l++) result.at[l] = element<{kind}>(sum[l]);
    store_vec<{lanes}>(target + (row * units + u) * {lanes}, result);
  }}"""
