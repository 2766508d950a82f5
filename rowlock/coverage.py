"""List Paddle's names that are built, and the devices of each op: the text of ``docs/coverage.md``."""

from __future__ import annotations

import importlib
from collections import defaultdict
from collections.abc import Iterator

from .names import paddle_names

_DEVICES = {
    "CPU": ("numpy", "llvm", "onednn", "xla"),
    "GPU": ("cupy", "cuda", "cublaslt", "cudnn"),
}
_ABOUT = """# Coverage

`rowlock coverage` writes this page from what is there. "Paddle" is 1.8.5 for `fluid` and what stands beside it,
and 3.3.1 for `paddle`, `distributed`, `distribution`, `geometric`, `incubate`, `linalg`, `nn`, `static` and
`vision`. A name that is not built raises AttributeError and says so.
"""


def text() -> str:
    """Return the page as Markdown."""
    return "\n".join([_ABOUT, *_names(), *_ops()]) + "\n"


def built_names() -> dict[str, tuple[set[str], set[str]]]:
    """Return, for each module of Paddle's, the names that exist here and the missing ones."""
    modules = {}
    for path, names in sorted(paddle_names().items()):
        try:
            module = importlib.import_module("rowlock" if path == "paddle" else f"rowlock.{path}")
        except ModuleNotFoundError:
            modules[path] = (set[str](), set(names))
            continue
        present = set(names).intersection(dir(module))
        modules[path] = (present, set(names) - present)
    return modules


def _names() -> Iterator[str]:
    modules = built_names()
    # fluid.layers repeats the names of its modules.
    modules_counted = [
        parts for path, parts in modules.items() if not path.startswith("fluid.layers.")
    ]
    total = sum(len(present) for present, _ in modules_counted)
    every = total + sum(len(lacks) for _, lacks in modules_counted)
    yield f"## Names\n\n{total:,} of {every:,}.\n"
    yield "| module | built | not built |\n|---|---|---|"
    for path, (present, lacks) in modules.items():
        absent = " ".join(f"`{name}`" for name in sorted(lacks))
        yield f"| `{path}` | {len(present)} of {len(present) + len(lacks)} | {absent} |"


def _ops() -> Iterator[str]:
    from .executor.kernels.registry import KERNELS
    from .graph.ops.registry import BLOCK_OPS, MESSAGE_OPS, OPS

    back_ends: defaultdict[str, set[str]] = defaultdict(set)
    for op, back_end in KERNELS:
        back_ends[op].add(back_end)
    plain = [name for name in sorted(OPS) if back_ends[name]]
    yield f"\n## Ops\n\n{len(plain)} with kernels of their own; others are made of these while compiling.\n"
    yield f"| op | {' | '.join(_DEVICES)} |\n|---|{'---|' * len(_DEVICES)}"
    for name in plain:
        cells = (
            ", ".join(candidate for candidate in offered if candidate in back_ends[name])
            for offered in _DEVICES.values()
        )
        yield f"| `{name}` | {' | '.join(cells)} |"
    blocks = ", ".join(f"`{name}`" for name in sorted(BLOCK_OPS))
    yield f"\nRead into the graph with the blocks and arrays that they stand for: {blocks}."
    messages = ", ".join(f"`{name}`" for name in sorted(MESSAGE_OPS))
    yield f"\nMove values between trainers and servers, or trainers, around what is computed: {messages}."
