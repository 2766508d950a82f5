"""What switches of a collective fleet of Paddle 2.x make of an optimizer: the losses of one worker.

``FLAGS_enable_pir_api=0 python tests/reference/fleet_2x.py`` writes ``fleet_2x.json`` where Paddle 3.3.1 is
installed.
"""

import json
from pathlib import Path

import numpy as np

STEPS, ROWS = 7, 8
EXCLUDED = {"exclude_from_weight_decay": ["b_0"]}
CASES = {
    "momentum": ("momentum", {}),
    "adam": ("adam", {}),
    "weight decay": ("decay", {}),
    "lars": (
        "momentum",
        {
            "lars": True,
            "lars_configs": {"lars_coeff": 0.01, "lars_weight_decay": 0.005, **EXCLUDED},
        },
    ),
    "lars, decaying rate": (
        "decaying",
        {
            "lars": True,
            "lars_configs": {"lars_coeff": 0.01, "lars_weight_decay": 0.005, **EXCLUDED},
        },
    ),
    "lamb": ("adam", {"lamb": True, "lamb_configs": {"lamb_weight_decay": 0.01, **EXCLUDED}}),
    "recompute": ("adam", {"recompute": True}),
    "mean of 3": (
        "momentum",
        {"gradient_merge": True, "gradient_merge_configs": {"k_steps": 3, "avg": True}},
    ),
    "sum of 2": (
        "adam",
        {"gradient_merge": True, "gradient_merge_configs": {"k_steps": 2, "avg": False}},
    ),
    "mean of 2, decaying rate": (
        "decaying",
        {"gradient_merge": True, "gradient_merge_configs": {"k_steps": 2, "avg": True}},
    ),
    "recompute, mean of 2": (
        "momentum",
        {
            "recompute": True,
            "gradient_merge": True,
            "gradient_merge_configs": {"k_steps": 2, "avg": True},
        },
    ),
}


def optimizer(paddle, kind):
    """Return an optimizer, and the schedule of its rate, if there is one."""
    methods, schedule = paddle.optimizer, None
    if kind == "adam":
        return methods.Adam(0.01), None
    rate, decay = 0.1, 0.05 if kind == "decay" else None
    if kind == "decaying":
        rate = schedule = methods.lr.StepDecay(0.1, 2, 0.5)
    return methods.Momentum(rate, 0.9, weight_decay=decay), schedule


def losses(paddle, fleet, name):
    """Train as a case says, and return the loss of each step."""
    kind, switches = CASES[name]
    main, startup = paddle.static.Program(), paddle.static.Program()
    with paddle.static.program_guard(main, startup), paddle.utils.unique_name.guard():
        x = paddle.static.data("x", [None, 6], "float32")
        y = paddle.static.data("y", [None, 1], "float32")
        hidden = paddle.static.nn.fc(x, 8, activation="tanh")
        loss = paddle.mean(paddle.square(paddle.static.nn.fc(hidden, 1) - y))
        strategy = fleet.DistributedStrategy()
        for switch, value in switches.items():
            setattr(strategy, switch, value)
        if strategy.recompute:
            strategy.recompute_configs = {"checkpoints": [hidden.name]}
        fleet.init(is_collective=True, strategy=strategy)
        method, schedule = optimizer(paddle, kind)
        fleet.distributed_optimizer(method, strategy).minimize(loss, startup)
    exe, scope, draw = (
        paddle.static.Executor(paddle.CPUPlace()),
        paddle.static.Scope(),
        np.random.RandomState(0),
    )
    steps = []
    with paddle.static.scope_guard(scope):
        exe.run(startup)
        for p in sorted(main.all_parameters(), key=lambda p: p.name):
            value = draw.uniform(-0.5, 0.5, p.shape).astype("float32")
            scope.find_var(p.name).get_tensor().set(value, paddle.CPUPlace())
        for _ in range(STEPS):
            rows = draw.standard_normal((ROWS, 6)).astype("float32")
            feed = {"x": rows, "y": rows.sum(1, keepdims=True)}
            steps.append(float(np.mean(exe.run(main, feed=feed, fetch_list=[loss])[0])))
            if schedule is not None:
                schedule.step()
    return steps


if __name__ == "__main__":
    import paddle
    from paddle.distributed import fleet

    paddle.enable_static()
    rows = {name: [round(loss, 6) for loss in losses(paddle, fleet, name)] for name in CASES}
    text = ",\n".join(f" {json.dumps(name)}: {json.dumps(row)}" for name, row in rows.items())
    Path(__file__).with_suffix(".json").write_text("{\n" + text + "\n}\n")
