"""Make pictures.json: what Paddle 1.8.5 draws with debug_graphviz_path, and the ops it fuses on CPU.

Run from the top of the repository with Paddle's Python:  CPU_NUM=2 python -m tests.reference.pictures
"""

from __future__ import annotations

import json
import re
import tempfile
from collections import Counter
from collections.abc import Callable
from pathlib import Path
from typing import Any

FILE = Path(__file__).with_name("pictures.json")


def two_layers(fluid: Any) -> Any:
    """fc relu, fc, mean, SGD."""
    x = fluid.data("x", [None, 4])
    loss = fluid.layers.mean(fluid.layers.fc(fluid.layers.fc(x, 3, act="relu"), 1))
    fluid.optimizer.SGD(0.1).minimize(loss)
    return loss


def residual(fluid: Any) -> Any:
    """relu of a sum of two branches, one of which ends in relu, too; trained."""
    x = fluid.data("x", [None, 4])
    one = fluid.layers.fc(x, 4, act="relu")
    other = fluid.layers.fc(one, 4)
    loss = fluid.layers.mean(fluid.layers.relu(fluid.layers.elementwise_add(one, other)))
    fluid.optimizer.SGD(0.1).minimize(loss)
    return loss


def forward(act: str) -> Callable[[Any], Any]:
    """act(fc) and x + act(fc), not trained."""

    def build(fluid: Any) -> Any:
        x = fluid.data("x", [None, 4])
        apply = getattr(fluid.layers, act)
        inner = apply(fluid.layers.fc(x, 4))
        outer = fluid.layers.elementwise_add(x, apply(fluid.layers.scale(inner, 2.0)))
        return fluid.layers.mean(outer)

    return build


def second_reader(fluid: Any) -> Any:
    """relu of a sum that somebody else reads, too."""
    x = fluid.data("x", [None, 4])
    total = fluid.layers.elementwise_add(x, fluid.layers.fc(x, 4, bias_attr=False))
    return fluid.layers.mean(fluid.layers.elementwise_mul(fluid.layers.relu(total), total))


NETS: dict[str, tuple[Callable[[Any], Any], bool]] = {
    "two_layers": (two_layers, True),
    "residual": (residual, True),
    "relu": (forward("relu"), False),
    "tanh": (forward("tanh"), False),
    "second_reader": (second_reader, False),
}
PICTURES = ("original_graph", "fused_graph", "multi_devices_graph")


def drawn(fluid: Any, name: str) -> dict[str, Any]:
    """Run one step on two places and return, by picture, how often each box and arrow is there."""
    import numpy as np

    build, trains = NETS[name]
    main, startup = fluid.Program(), fluid.Program()
    with fluid.program_guard(main, startup), fluid.unique_name.guard():
        loss = build(fluid)
    strategy = fluid.BuildStrategy()
    strategy.fuse_elewise_add_act_ops = True
    strategy.fuse_all_reduce_ops = False
    with tempfile.TemporaryDirectory() as folder, fluid.scope_guard(fluid.Scope()):
        strategy.debug_graphviz_path = folder + "/p"
        exe = fluid.Executor(fluid.CPUPlace())
        exe.run(startup)
        program = fluid.CompiledProgram(main).with_data_parallel(
            loss_name=loss.name if trains else None,
            build_strategy=strategy,
            places=fluid.cpu_places(2),
        )
        try:
            exe.run(program, feed={"x": np.ones((4, 4), "float32")}, fetch_list=[loss])
        except Exception as error:  # Paddle fuses x + tanh(y) and then has no kernel for it
            assert "elementwise_add,tanh has not been implemented" in str(error), error
        return {name: read(Path(f"{folder}/p_{name}").read_text()) for name in PICTURES}


def read(text: str) -> dict[str, dict[str, int]]:
    """Count boxes by label and arrows by labels; numbers of nodes and name scopes are left out."""
    boxes = dict(re.findall(r'(?m)^\s*(\w+) ?\[label="([^"]*)"', text))
    labels = {}
    for key, label in boxes.items():
        label = re.sub(r"@\d+|\(\d+\)|^/(\w*/)?", "", label)
        labels[key] = label
    arrows = re.findall(r"(\w+) ?-> ?(\w+)", text)
    return {
        "boxes": dict(Counter(labels.values())),
        "arrows": dict(Counter(f"{labels[a]} -> {labels[b]}" for a, b in arrows)),
    }


if __name__ == "__main__":
    import paddle.fluid

    pictures = {name: drawn(paddle.fluid, name) for name in NETS}
    FILE.write_text(json.dumps(pictures, indent=0, sort_keys=True) + "\n")
