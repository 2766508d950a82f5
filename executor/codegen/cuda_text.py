"""The text of kernels that evaluate expressions in loops (see ``cuda_loops.py`` for which loop is whose).

A thread loads a vector from several rows before it computes and stores: that many loads are under way at once.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from ...strategies.bounded_dict import BoundedDict
from ..cuda.kernel import CudaKernel
from .cuda_nest import Nest
from .cuda_source import SCALAR_SOURCE, Constant, CudaWriter, Value, kind_of

THREADS = 256  # of a block
_KEPT = 4096  # kernels whose text is not written again
_kernels: BoundedDict[tuple[object, ...], tuple[CudaKernel, list[Constant]]] = BoundedDict(_KEPT)


def kernel_of(
    nest: Nest, width: int, index: str, parted: bool = False
) -> tuple[CudaKernel, list[Constant]]:
    """Return the kernel of a nest of loops, and the numbers among its arguments."""
    key = (nest.form(), width, index, parted)
    entry = _kernels.get(key)
    if entry is None:
        text = Text(nest, width, index, parted)
        entry = _kernels[key] = text.kernel(), text.constants
    return entry


@dataclass
class Text:
    """Writes the kernel of one nest of loops; elements are taken ``width`` at once.

    ``parted``: sums are written to parts, one for each block that adds to a sum.
    """

    nest: Nest
    width: int
    index: str
    parted: bool = False

    def __post_init__(self) -> None:
        nest = self.nest
        self.depth = len(nest.sizes)
        self.inner = self.depth - 1
        self.read = nest.read
        values = {name: Value(f"v{k}", kind_of(nest.memories[k].array.dtype))
                  for name, k in nest.reads.items()}  # fmt: skip
        writer = CudaWriter(values)
        results = [
            writer.number(e, nest.total(j))
            if nest.summed[j]
            else writer.element(e, nest.memories[k].array.dtype)
            for j, (e, k) in enumerate(nest.writes)
        ]
        self.constants: list[Constant] = writer.constants
        self.definitions = self._function(writer.lines, results)
        self.unrolled = nest.unrolled

    def _function(self, lines: list[str], results: list[str]) -> str:
        """What is computed of one element: results are written, or added to what was summed so far."""
        nest = self.nest
        taken = [f"const {kind_of(nest.memories[k].array.dtype)} v{k}" for k in self.read]
        taken += [f"const {c.kind} {c.name}" for c in self.constants]
        for j, (_, k) in enumerate(nest.writes):
            taken.append(f"{nest.total(j) if nest.summed[j] else nest.held(k)}& r{j}")
        body = [*lines]
        body += [
            self._joined(f"r{j}", text) if nest.summed[j] else f"r{j} = {text};"
            for j, text in enumerate(results)
        ]
        head = f"static __device__ __forceinline__ void one({', '.join(taken)})"
        return f"{head} {{\n{_indented(body)}\n}}\n"

    def _joined(self, total: str, more: str) -> str:
        if self.nest.join == "Sum":
            return f"{total} += {more};"
        return f"{total} = {self.nest.join}::join({total}, {more});"

    def _none(self, j: int) -> str:
        """Return what nothing is joined to."""
        kind = self.nest.total(j)
        return "0" if self.nest.join == "Sum" else f"{self.nest.join}::none<{kind}>()"

    def kernel(self) -> CudaKernel:
        """Return the kernel: its arguments are the memories, parts, sizes, strides and constants."""
        nest = self.nest
        arguments = [
            (f"{'' if k in nest.written else 'const '}{nest.held(k)}*", f"m{k}")
            for k in range(len(nest.memories))
        ]
        if self.parted:
            arguments += [(f"{nest.total(j)}*", f"part{j}") for j, s in enumerate(nest.summed) if s]
        arguments += [(self.index, f"n{d}") for d in range(self.depth)]
        arguments += [(self.index, f"s{k}_{d}") for k, d in self.nest.strided()]
        arguments += [(c.kind, c.name) for c in self.constants]
        name, body = {
            "columns": (f"{nest.join.lower()}_columns", self._columns),
            "rows": (f"{nest.join.lower()}_rows", self._rows),
            "": ("elementwise", self._flat if self.depth == 1 else self._grid),
        }[nest.sums]
        includes = (SCALAR_SOURCE, *(() if nest.join == "Sum" else ("reduce.cuh",)))
        text = _indented(body())
        return CudaKernel(name, tuple(arguments), text, includes, self.definitions, THREADS)

    # ---- parts that all loops have -----------------------------------------------------------------------

    def _offset(self, k: int, dims: range) -> list[str]:
        """Return the terms of a memory's offset for coordinates ``i0``, ``i1``..."""
        strides = self.nest.memories[k].strides
        return [f"i{d} * s{k}_{d}" for d in dims if strides[d]]

    def _coordinates(self, place: str, dims: range) -> list[str]:
        """Return the lines that take a number of a row apart."""
        if not dims:
            return []
        unsigned = "unsigned " + self.index
        lines = [f"{unsigned} rest_ = {place};"] if len(dims) > 1 else []
        for d in reversed(dims[1:]):
            lines += [f"const {self.index} i{d} = rest_ % ({unsigned})n{d};", f"rest_ /= n{d};"]
        return [*lines, f"const {self.index} i{dims[0]} = {'rest_' if len(dims) > 1 else place};"]

    def _inner_offset(self, k: int, c: str) -> list[str]:
        stride = self.nest.memories[k].strides[-1]
        if not stride:
            return []
        moved = c if self.width == 1 else f"{c} * {self.width}"
        return [moved] if stride == 1 else [f"{moved} * s{k}_{self.inner}"]

    def _vector(self, k: int) -> bool:
        return self.width > 1 and self.nest.memories[k].strides[-1] != 0

    def _declared(self, k: int, count: str = "") -> str:
        kind = self.nest.held(k)
        return (
            f"Vec<{kind}, {self.width}> v{k}{count};" if self._vector(k) else f"{kind} v{k}{count};"
        )

    def _load(self, k: int, at: str, u: str = "") -> str:
        source = f"load_vec<{self.width}>(m{k} + ({at}))" if self._vector(k) else f"m{k}[{at}]"
        return f"v{k}{u} = {source};"

    def _one(self, u: dict[int, str], i: str, results: list[str]) -> str:
        """Return the call for one element of what was loaded."""
        taken = [f"wide(v{k}{u.get(k, '')}{f'.at[{i}]' if self._vector(k) else ''})"
                 for k in self.read]  # fmt: skip
        return f"one({', '.join([*taken, *(c.name for c in self.constants), *results])});"

    def _compute(self, u: dict[int, str], at: dict[int, str]) -> list[str]:
        """Return the lines that compute what was loaded, and store or add it; ``at``: offsets of stores."""
        nest, lines, results, stores = self.nest, [], [], []
        each = "[i]" if self.width > 1 else "[0]"
        for j, (_, k) in enumerate(nest.writes):
            if nest.summed[j]:
                results.append(f"a{j}{each}")
                continue
            if self.width > 1:
                lines.append(f"Vec<{nest.held(k)}, {self.width}> r{j};")
                results.append(f"r{j}.at[i]")
                stores.append(f"store_vec(m{k} + ({at[k]}), r{j});")
            else:
                lines.append(f"{nest.held(k)} r{j};")
                results.append(f"r{j}")
                stores.append(f"m{k}[{at[k]}] = r{j};")
        call = self._one(u, "i", results)
        if self.width > 1:
            lines.append("#pragma unroll")
            call = f"for (int i = 0; i < {self.width}; i++) {call}"
        return [*lines, call, *stores]

    def _several(
        self, first: str, end: str, dims: range, base: dict[int, str], column: str
    ) -> list[str]:
        """Return the loop over numbers ``t`` of rows (or, without ``dims`` and column, of pieces).

        ``base``: what is known of offsets before it; memories that do not move in the loop are loaded there.
        """
        steady = {k for k in self.read if not self._moves(k, dims, column)}
        moving = [k for k in self.read if k not in steady]
        stored = [k for j, (_, k) in enumerate(self.nest.writes) if not self.nest.summed[j]]
        lines = [f"{self._declared(k)} {self._load(k, base[k])}" for k in sorted(steady)]
        lines += [
            f"for ({self.index} first = {first}; first < {end}; first += {self.unrolled} * step) {{"
        ]
        inside = [self._declared(k, f"[{self.unrolled}]") for k in moving]
        places = sorted({*moving, *stored})
        inside += [f"{self.index} o{k}[{self.unrolled}];" for k in places]
        guard = [
            "#pragma unroll",
            f"for (int u = 0; u < {self.unrolled}; u++) {{",
            f"  const {self.index} t = first + u * step;",
            f"  if (t < {end}) {{",
        ]
        loads = [*self._row_of(dims, column)]
        for k in places:
            terms = self._offset(k, dims) + (self._inner_offset(k, column) if column else [])
            loads.append(f"o{k}[u] = {' + '.join([base[k], *terms])};")
        loads += [self._load(k, f"o{k}[u]", "[u]") for k in moving]
        compute = self._compute(dict.fromkeys(moving, "[u]"), {k: f"o{k}[u]" for k in stored})
        for block in (loads, compute):
            inside += [*guard, _indented(block, 4), "  }", "}"]
        return [*lines, _indented(inside), "}"]

    def _moves(self, k: int, dims: range, column: str) -> bool:
        strides = self.nest.memories[k].strides
        return any(strides[d] for d in dims) or bool(column and strides[-1])

    def _row_of(self, dims: range, column: str) -> list[str]:
        if column in ("", "t"):
            return self._coordinates("t", dims)
        unsigned = "unsigned " + self.index
        return [
            f"const {self.index} row = ({unsigned})t / ({unsigned})pieces, c = t - row * pieces;",
            *self._coordinates("row", dims),
        ]

    # ---- the loops ---------------------------------------------------------------------------------------

    def _pieces(self) -> str:
        over = f" / {self.width}" if self.width > 1 else ""
        return f"const {self.index} pieces = n{self.inner}{over};"

    def _flat(self) -> list[str]:
        """One dimension: a piece after the other, then what is left of a vector."""
        base = dict.fromkeys(range(len(self.nest.memories)), "0")
        lines = [self._pieces(), f"const {self.index} step = gridDim.x * blockDim.x;"]
        lines += self._several("thread_index()", "pieces", range(0), base, "t")
        if self.width > 1:
            lines += self._rest_of_flat()
        return lines

    def _rest_of_flat(self) -> list[str]:
        single = Text(self.nest, 1, self.index)
        at = {k: "t" if m.strides[-1] else "0" for k, m in enumerate(self.nest.memories)}
        body = [f"{single._declared(k)} {single._load(k, at[k])}" for k in self.read]
        body += single._compute({}, at)
        head = (
            f"for ({self.index} t = pieces * {self.width} + thread_index(); t < n0; t += step) {{"
        )
        return [head, _indented(body), "}"]

    def _grid(self) -> list[str]:
        """A thread takes one piece of rows that lie a grid's height apart."""
        rows = range(self.inner)
        lines = [
            self._pieces(),
            f"const {self.index} c = ({self.index})blockIdx.x * blockDim.x + threadIdx.x;",
            "if (c >= pieces) return;",
            *self._height(rows),
        ]
        base = {k: " + ".join(self._inner_offset(k, "c")) or "0"
                for k in range(len(self.nest.memories))}  # fmt: skip
        return lines + self._several("row0", "rows", rows, base, "")

    def _height(self, rows: range) -> list[str]:
        count = " * ".join(f"n{d}" for d in rows) or "1"
        return [
            f"const {self.index} rows = {count}, step = gridDim.y * blockDim.y;",
            f"const {self.index} row0 = ({self.index})blockIdx.y * blockDim.y + threadIdx.y;",
        ]

    def _at_place(self) -> list[str]:
        """Return the lines that find a sum's first element in every memory."""
        dims = range(self.nest.lead)
        lines = self._coordinates("place", dims)
        return lines + [
            f"const {self.index} b{k} = {' + '.join(self._offset(k, dims)) or '0'};"
            for k in range(len(self.nest.memories))
        ]

    def _totals(self) -> list[str]:
        return [
            f"{self.nest.total(j)} a{j}[{self.width}]; "
            f"for (int i = 0; i < {self.width}; i++) a{j}[i] = {self._none(j)};"
            for j, summed in enumerate(self.nest.summed)
            if summed
        ]

    def _columns(self) -> list[str]:
        """Threads beside each other have columns, threads above each other add up rows of them."""
        rows = range(self.nest.lead, self.inner)
        lines = [
            self._pieces(),
            f"const {self.index} across = (pieces + blockDim.x - 1) / blockDim.x;",
            f"const {self.index} place = blockIdx.x / across;",
            f"const {self.index} c = (blockIdx.x - place * across) * blockDim.x + threadIdx.x;",
            *self._height(rows),
            *self._at_place(),
            *self._totals(),
            "if (c < pieces) {",
        ]
        base = {k: " + ".join([f"b{k}", *self._inner_offset(k, "c")])
                for k in range(len(self.nest.memories))}  # fmt: skip
        lines += [_indented(self._several("row0", "rows", rows, base, "")), "}"]
        return [*lines, *self._in_turn(self._column_sum, THREADS * self.width)]

    def _in_turn(self, add_up: Callable[[int], list[str]], count: int) -> list[str]:
        """Return the text that adds up one sum after the other: a block's memory has room for few."""
        summed = [j for j, is_summed in enumerate(self.nest.summed) if is_summed]
        kind = "double" if any(self.nest.total(j) != "float" for j in summed) else "float"
        lines = [f"__shared__ {kind} room[{count}];"]
        for j in summed:
            lines += ["__syncthreads();"] if j != summed[0] else []
            lines += add_up(j)
        return lines

    def _column_sum(self, j: int) -> list[str]:
        k, width = self.nest.writes[j][1], self.width
        stride = f" * s{k}_{self.inner}" if (k, self.inner) in self.nest.strided() else ""
        at, slot = f"(c * {width} + i)", f"held[i * {THREADS} + own]"
        if self.parted:
            count = " * ".join([f"n{d}" for d in range(self.nest.lead)] + [f"n{self.inner}"])
            store = f"part{j}[blockIdx.y * ({count}) + place * n{self.inner} + {at}] = {slot};"
        else:
            store = f"m{k}[b{k} + {at}{stride}] = element<{self.nest.held(k)}>({slot});"
        return [
            "{",
            f"  {self.nest.total(j)}* held = ({self.nest.total(j)}*)room;",
            "  const int x = blockDim.x, own = threadIdx.y * x + threadIdx.x;",
            f"  for (int i = 0; i < {width}; i++) {slot} = a{j}[i];",
            "  for (int half = blockDim.y / 2; half > 0; half /= 2) {",
            "    __syncthreads();",
            "    if (threadIdx.y < half)",
            f"      for (int i = 0; i < {width}; i++)",
            f"        {self._joined(slot, f'held[i * {THREADS} + own + half * x]')}",
            "  }",
            "  __syncthreads();",
            "  if (threadIdx.y == 0 && c < pieces)",
            f"    for (int i = 0; i < {width}; i++) {store}",
            "}",
        ]

    def _rows(self) -> list[str]:
        """Threads beside each other add up all that belongs to one sum, or their block's part of it."""
        rows = range(self.nest.lead, self.inner)
        count = " * ".join(f"n{d}" for d in range(self.nest.lead)) or "1"
        lines = [
            self._pieces(),
            f"const {self.index} at = ({self.index})blockIdx.x * blockDim.y + threadIdx.y, places = {count};",
            f"const {self.index} place = at < places ? at : places - 1, step = gridDim.y * blockDim.x;",
            f"const {self.index} all = {' * '.join([f'n{d}' for d in rows] + ['pieces'])};",
            f"const {self.index} end = at < places ? all : 0;",
            *self._at_place(),
            *self._totals(),
        ]
        base = {k: f"b{k}" for k in range(len(self.nest.memories))}
        own = f"({self.index})blockIdx.y * blockDim.x + threadIdx.x"
        lines += self._several(own, "end", rows, base, "c" if rows else "t")
        return [*lines, *self._in_turn(self._row_sum, THREADS)]

    def _row_sum(self, j: int) -> list[str]:
        k = self.nest.writes[j][1]
        target, kind = f"m{k}[b{k}]", self.nest.total(j)
        value = f"element<{self.nest.held(k)}>(*held)"
        if self.parted:
            target, value = f"part{j}[({self.index})blockIdx.y * places + place]", "*held"
        return [
            "{",
            f"  {kind}* held = ({kind}*)room + threadIdx.y * blockDim.x + threadIdx.x;",
            f"  {kind} mine = a{j}[0];",
            f"  for (int i = 1; i < {self.width}; i++) {self._joined('mine', f'a{j}[i]')}",
            "  *held = mine;",
            "  for (int half = blockDim.x / 2; half > 0; half /= 2) {",
            "    __syncthreads();",
            f"    if (threadIdx.x < half) {self._joined('*held', 'held[half]')}",
            "  }",
            "  __syncthreads();",
            f"  if (threadIdx.x == 0 && at < places) {target} = {value};",
            "}",
        ]


def _indented(lines: list[str], by: int = 2) -> str:
    pad = " " * by
    return "\n".join(pad + line for text in lines for line in text.split("\n"))
