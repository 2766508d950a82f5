"""Make protos.json: slots and attributes of every op declared here that Paddle 1.8.5 has, too.

Run from the top of the repository:  python -m tests.reference.generate_protos ALL.json

ALL.json holds every op proto of Paddle 1.8.5: {op type: {"in": [slots], "out": [slots], "attrs": {name:
type}}}; a slot is marked * if it takes any number of variables, ? if it may be left out, ~ if it is
an output that only the backward pass reads. protos.json is the part of it that is about ops declared in
graph/ops. Attributes that every op has (op_role, op_device, ...) are left out.
"""

from __future__ import annotations

import json
import sys
from pathlib import Path

from rowlock.executor.kernels.capabilities import capabilities
from rowlock.graph.ops.registry import BLOCK_OPS, MESSAGE_OPS, OPS

APART = {"unique"}  # declared as Paddle 3 has it, with more results
LEFT_OUT = ("op_role", "op_role_var", "op_namescope", "op_callstack", "op_device")


def main(source: str) -> None:
    """Write protos.json beside this file."""
    capabilities()  # imports every declaration
    everything = json.loads(Path(source).read_text())
    lines = []
    for name in sorted((OPS.keys() | BLOCK_OPS.keys() | MESSAGE_OPS.keys()) & set(everything) - APART):
        entry = everything[name]
        entry["attrs"] = {
            k: v for k, v in entry["attrs"].items() if k not in LEFT_OUT and "@" not in k
        }
        lines.append(f" {json.dumps(name)}: {json.dumps(entry)}")
    target = Path(__file__).with_name("protos.json")
    target.write_text("{\n" + ",\n".join(lines) + "\n}\n")


if __name__ == "__main__":
    main(sys.argv[1])
