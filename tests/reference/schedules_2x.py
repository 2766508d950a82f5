"""Rates that the schedules of ``paddle.optimizer.lr`` give in Paddle 3.3.1, and what they refuse.

Run with a Python that has paddlepaddle==3.3.1 to make schedules_2x.json:  python schedules_2x.py
{"rates": {name: {"steps": 60 rates, "resumed": the last 30 after a reload, "jumps": rates at JUMPS or None}},
 "errors": {call: the built-in error it raises}}
"""

import os
import sys

import numpy as np

STEPS, RELOAD = 60, 30
JUMPS = [3, 0, 17, 18, 40]
METRICS = [round(float(np.sin(i / 3) / (1 + i / 9) + 2), 4) for i in range(STEPS)]

SCHEDULES = {
    "noam": lambda lr: lr.NoamDecay(64, 10, 2.0),
    "noam_last_epoch": lambda lr: lr.NoamDecay(64, 10, last_epoch=20),
    "piecewise": lambda lr: lr.PiecewiseDecay([5, 17, 40], [0.1, 0.03, 0.007, 1e-4]),
    "piecewise_more_values": lambda lr: lr.PiecewiseDecay((5,), (0.1, 0.03, 0.007)),
    "natural_exp": lambda lr: lr.NaturalExpDecay(0.5, 0.1),
    "inverse_time": lambda lr: lr.InverseTimeDecay(0.5, 0.1),
    "polynomial": lambda lr: lr.PolynomialDecay(0.5, 20),
    "polynomial_cycle": lambda lr: lr.PolynomialDecay(0.5, 7, 0.001, 1.5, True),
    "warmup": lambda lr: lr.LinearWarmup(0.5, 20, 0, 0.5),
    "warmup_int": lambda lr: lr.LinearWarmup(2, 20, 0.1, 0.5),
    "warmup_polynomial": lambda lr: lr.LinearWarmup(lr.PolynomialDecay(0.5, 20), 8, 0.01, 0.5),
    "warmup_cosine": lambda lr: lr.LinearWarmup(lr.CosineAnnealingDecay(0.5, 9, 0.1), 8, 0.01, 0.5),
    "exponential": lambda lr: lr.ExponentialDecay(0.5, 0.9),
    "exponential_last_epoch": lambda lr: lr.ExponentialDecay(0.5, 0.9, last_epoch=10),
    "multi_step": lambda lr: lr.MultiStepDecay(0.5, [5, 17, 40], 0.8),
    "multi_step_tuple": lambda lr: lr.MultiStepDecay(1, (0, 2)),
    "step": lambda lr: lr.StepDecay(0.5, 7),
    "step_gamma": lambda lr: lr.StepDecay(0.5, 1, 0.95),
    "lambda": lambda lr: lr.LambdaDecay(0.5, lambda x: 0.95**x),
    "multiplicative": lambda lr: lr.MultiplicativeDecay(0.5, lambda x: 1 - x / 100),
    "cosine": lambda lr: lr.CosineAnnealingDecay(0.5, 10),
    "cosine_eta": lambda lr: lr.CosineAnnealingDecay(0.5, 7, 0.1),
    "cosine_last_epoch": lambda lr: lr.CosineAnnealingDecay(0.5, 25, 0.1, last_epoch=5),
    "one_cycle": lambda lr: lr.OneCycleLR(1.0, 62),
    "one_cycle_linear": lambda lr: lr.OneCycleLR(1, 62, 5, 0.01, 0.4, "linear"),
    "one_cycle_three": lambda lr: lr.OneCycleLR(1.0, 62, three_phase=True),
    "cyclic": lambda lr: lr.CyclicLR(0.1, 0.5, 5),
    "cyclic_2": lambda lr: lr.CyclicLR(0.1, 0.5, 5, 8, "triangular2"),
    "cyclic_exp": lambda lr: lr.CyclicLR(0.1, 0.5, 5, 3, "exp_range", 0.97),
    "cyclic_function": lambda lr: lr.CyclicLR(0.1, 0.5, 5, scale_fn=lambda x: 0.95**x),
    "cyclic_iterations": lambda lr: lr.CyclicLR(
        0.1, 0.5, 5, mode="own", scale_fn=lambda x: 0.95**x, scale_mode="iterations"
    ),
    "linear": lambda lr: lr.LinearLR(0.5, 20),
    "linear_down": lambda lr: lr.LinearLR(0.5, 45, 1.0, 0.0),
    "restarts": lambda lr: lr.CosineAnnealingWarmRestarts(0.5, 7),
    "restarts_mult": lambda lr: lr.CosineAnnealingWarmRestarts(0.5, 4, 2, 0.05),
    "restarts_last_epoch": lambda lr: lr.CosineAnnealingWarmRestarts(0.5, 4, 2, last_epoch=3),
    "plateau": lambda lr: lr.ReduceOnPlateau(1.0, factor=0.5, patience=2, cooldown=1, min_lr=0.1),
    "plateau_max": lambda lr: lr.ReduceOnPlateau(1.0, "max", 0.8, 1, 0.01, "abs"),
}

CALLS = [
    "ExponentialDecay('0.1', 0.5)",
    "ExponentialDecay(-0.1, 0.5)",
    "ExponentialDecay(0.1, 1.0)",
    "NoamDecay(0, 10)",
    "PiecewiseDecay([], [0.1])",
    "PiecewiseDecay([3], [0.1])",
    "NaturalExpDecay(0.1, 0.0)",
    "PolynomialDecay(0.1, 0)",
    "PolynomialDecay(0.1, 2.5)",
    "PolynomialDecay(0.1, 5, power=0.0)",
    "LinearWarmup('0.1', 5, 0.0, 0.1)",
    "LinearWarmup(0.1, 0, 0.0, 0.1)",
    "LinearWarmup(0.1, 5, 0.2, 0.1)",
    "MultiStepDecay(0.1, 3)",
    "MultiStepDecay(0.1, [5, 3])",
    "MultiStepDecay(0.1, [3, 5], 1.0)",
    "StepDecay(0.1, 2.0)",
    "StepDecay(0.1, 0)",
    "StepDecay(0.1, 2, 1.5)",
    "LambdaDecay(0.1, 0.9)",
    "MultiplicativeDecay(0.1, 0.9)",
    "ReduceOnPlateau('0.1')",
    "ReduceOnPlateau(0.1, 'mid')",
    "ReduceOnPlateau(0.1, factor=1.0)",
    "ReduceOnPlateau(0.1, threshold_mode='any')",
    "ReduceOnPlateau(0.1).step('1')",
    "ReduceOnPlateau(0.1).step(numpy.ones(2))",
    "CosineAnnealingDecay(0.1, 2.5)",
    "CosineAnnealingDecay(0.1, 5, '0')",
    "CosineAnnealingDecay(0.1, 0)",
    "OneCycleLR('1', 10)",
    "OneCycleLR(-1.0, 10)",
    "OneCycleLR(1.0, 10, end_learning_rate='0')",
    "OneCycleLR(1.0, 10, end_learning_rate=-0.1)",
    "OneCycleLR(1.0, 10.0)",
    "OneCycleLR(1.0, 0)",
    "OneCycleLR(1.0, 10, phase_pct=1)",
    "OneCycleLR(1.0, 10, phase_pct=1.5)",
    "OneCycleLR(1.0, 10, divide_factor='2')",
    "OneCycleLR(1.0, 10, phase_pct=0.5, three_phase=True)",
    "OneCycleLR(1.0, 10, anneal_strategy='none')",
    "OneCycleLR(1.0, 10).step(11)",
    "CyclicLR(0.1, '1', 5)",
    "CyclicLR(0.1, -1.0, 5)",
    "CyclicLR(0.1, 1.0, 5.0)",
    "CyclicLR(0.1, 1.0, 0)",
    "CyclicLR(0.1, 1.0, 5, 5.0)",
    "CyclicLR(0.1, 1.0, 5, 0)",
    "CyclicLR(0.1, 1.0, 5, exp_gamma=1)",
    "CyclicLR(0.1, 1.0, 5, mode='own')",
    "CyclicLR(0.1, 1.0, 5, scale_mode='epochs')",
    "LinearLR(0.1, 5, 0.0)",
    "LinearLR(0.1, 5, 0.5, 1.5)",
    "LinearLR(0.1, 0)",
    "CosineAnnealingWarmRestarts(0.1, 0)",
    "CosineAnnealingWarmRestarts(0.1, 5, 0)",
    "CosineAnnealingWarmRestarts(0.1, 5).step(-1)",
    "LRScheduler(0.1)",
    "StepDecay(0.1, 2).set_state_dict({})",
]


def rates(scheduler, start, stop):
    """Return the rates in force at each step, stepping on after each."""
    values = []
    for i in range(start, stop):
        values.append(float("%.9g" % scheduler()))
        scheduler.step(*[METRICS[i]] if hasattr(scheduler, "patience") else [])
    return values


def jumps(scheduler):
    values = []
    for epoch in JUMPS:
        scheduler.step(epoch)
        values.append(float("%.9g" % scheduler()))
    return values


def sequence(lr, build):
    scheduler, fresh = build(lr), build(lr)
    steps = rates(scheduler, 0, RELOAD)
    fresh.set_state_dict(scheduler.state_dict())
    steps += rates(scheduler, RELOAD, STEPS)
    resumed = rates(fresh, RELOAD, STEPS)
    jumped = None if hasattr(scheduler, "patience") else jumps(build(lr))
    return {"steps": steps, "resumed": resumed, "jumps": jumped}


def refusal(lr, call):
    """Return the names of the built-in errors that a call's error is."""
    try:
        eval(call, {**vars(lr), "numpy": np, **{name: getattr(lr, name) for name in lr.__all__}})
    except Exception as error:
        return [c.__name__ for c in type(error).__mro__ if c.__module__ == "builtins"]
    return None


def results(lr):
    return {
        "rates": {name: sequence(lr, build) for name, build in SCHEDULES.items()},
        "errors": {call: (refusal(lr, call) or [None])[0] for call in CALLS},
    }


if __name__ == "__main__":
    import compact_json
    import paddle

    path = os.path.join(os.path.dirname(os.path.abspath(sys.argv[0])), "schedules_2x.json")
    compact_json.write(path, results(paddle.optimizer.lr), 3)
