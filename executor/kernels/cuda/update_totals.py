"""What an update needs summed over a parameter, such as the squares under a norm."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence

from ....graph.ops import expr as e
from ...codegen.cuda_launches import Argument
from ...codegen.cuda_source import CudaWriter, Value


def numbers_of(*writers: CudaWriter) -> list[Argument]:
    """Return the parameters that stand for numbers in the text of these writers."""
    return [(f"{c.kind} {c.name}", c.value) for writer in writers for c in writer.constants]


class Inside(CudaWriter):
    """Writes terms of elements, and leaves the others to a writer of values computed once, ahead."""

    def __init__(
        self, operands: Mapping[str, Value], elements: Iterable[str], ahead: CudaWriter
    ) -> None:
        super().__init__(operands)
        self._elements, self._ahead = frozenset(elements), ahead

    def value(self, node: e.Expr) -> Value:
        return super().value(node) if self._varies(node) else self._ahead.value(node)

    def _varies(self, node: e.Expr) -> bool:
        return node.value in self._elements or any(map(self._varies, node.args))


class Totals:
    """The source of sums of ``terms``; ``loads`` maps an element to its array, ``types`` that to its C type."""

    def __init__(
        self,
        terms: Mapping[str, e.Expr],
        operands: Mapping[str, Value],
        loads: Mapping[str, str],
        types: Mapping[str, str],
    ) -> None:
        self.names = tuple(terms)
        self._loads, self._types = loads, types
        self._ahead = CudaWriter(operands, "once_")
        self._inside = Inside(operands, loads, self._ahead)
        self._texts = [self._inside.number(term, "float") for term in terms.values()]
        self.constants = numbers_of(self._ahead, self._inside)

    def by_chunk(
        self, member: str, scalars: Sequence[str], loops: Callable[[Callable[[int], str]], str]
    ) -> str:
        """Return the text that sums chunks into ``parts``; ``member`` and ``loops`` are the update's text."""
        declared = " ".join(f"float sum{j} = 0;" for j in range(len(self.names)))
        ahead = " ".join([*scalars, *self._ahead.lines])
        body = f"{member}\n  {ahead}\n  {declared}{loops(self._at)}"
        for j in range(len(self.names)):
            body += f"\n  const float all{j} = block_join<Sum>(sum{j});"
            at = f"(long long)blockIdx.x * {len(self.names)} + {j}"
            body += f"\n  if (!threadIdx.x) parts[{at}] = all{j};"
        return body

    def over_chunks(self, width: int, first: int) -> str:
        """Return the text that adds up each member's chunks; its line has ``width`` words."""
        count = len(self.names)
        body = f"\n  const long long* line = table + blockIdx.x * {width};"
        for j in range(count):
            body += f"""
  float sum{j} = 0;
  for (long long c = starts[blockIdx.x] + threadIdx.x; c < starts[blockIdx.x + 1]; c += blockDim.x)
    sum{j} += parts[c * {count} + {j}];
  const float all{j} = block_join<Sum>(sum{j});
  if (!threadIdx.x) *(float*)line[{first + j}] = all{j};"""
        return body

    def _at(self, lanes: int) -> str:
        """The text that adds ``lanes`` elements from ``i`` on."""
        load = [
            f"const Vec<{self._types[n]}, {lanes}> v_{n} = load_vec<{lanes}>(at_{n} + i);"
            for n in self._loads.values()
        ]
        reads = [f"const float {n} = wide(v_{source}.at[l]);" for n, source in self._loads.items()]
        adds = [f"sum{j} += {text};" for j, text in enumerate(self._texts)]
        inner = "\n      ".join([*reads, *self._inside.lines, *adds])
        loop = f"for (int l = 0; l < {lanes}; l++) {{\n      {inner}\n    }}"
        return "\n    ".join([*load, "#pragma unroll", loop])
