"""What Paddle 1.8.5 and Rowlock measure of the same batches; read by Python 3.7, too.

Run with a Python 3.7 that has paddlepaddle==1.8.5 to make measures.json:  python measures.py
{"steps": {name: [fetches of a step]}, "summary": [lines of the table]}
"""

import contextlib
import io
import os
import sys

import numpy as np

STEPS, CLASSES = 4, 3


def state(fluid, name, shape):
    """A persistable that begins with zeros."""
    return fluid.layers.create_global_var(shape, 0.0, "float32", persistable=True, name=name)


def precision_recall(fluid):
    probs, guess = fluid.layers.topk(fluid.data("scores", [None, CLASSES]), 1)
    label = fluid.data("label", [None, 1], "int64")
    guess, label = fluid.layers.cast(guess, "int32"), fluid.layers.cast(label, "int32")
    states = state(fluid, "states", [CLASSES, 4])
    block = fluid.default_main_program().global_block()
    batch, total = (
        block.create_var(name=name, dtype="float64", shape=[6]) for name in ("batch", "total")
    )
    # Paddle clears what it writes before it reads: the same variable for both would forget earlier steps.
    after = block.create_var(name="after", dtype="float32", shape=[CLASSES, 4])
    block.append_op(
        type="precision_recall",
        inputs={
            "MaxProbs": probs, "Indices": guess, "Labels": label, "StatesInfo": states,
            "Weights": fluid.data("weight", [None, 1]),
        },
        outputs={"BatchMetrics": batch, "AccumMetrics": total, "AccumStatesInfo": after},
        attrs={"class_number": CLASSES},
    )  # fmt: skip
    fluid.layers.assign(after, states)
    return [batch, total, states]


def positive_negative_pair(fluid):
    sums = [state(fluid, name, [1]) for name in ("positive", "negative", "neutral")]
    slots = ("PositivePair", "NegativePair", "NeutralPair")
    inputs = {
        "Score": fluid.data("scores", [None, CLASSES]),
        "Label": fluid.layers.cast(fluid.data("label", [None, 1], "int64"), "float32"),
        "QueryID": fluid.data("query", [None, 1], "int64"),
        "Weight": fluid.data("weight", [None, 1]),
    }
    inputs.update(("Accumulate" + slot, one) for slot, one in zip(slots, sums))
    fluid.default_main_program().global_block().append_op(
        type="positive_negative_pair",
        inputs=inputs,
        outputs=dict(zip(slots, sums)),
        attrs={"column": 1},
    )
    return sums


def mean_iou(fluid):
    _, guess = fluid.layers.topk(fluid.data("scores", [None, CLASSES]), 1)
    return list(fluid.layers.mean_iou(guess, fluid.data("label", [None, 1], "int64"), CLASSES + 1))


def ctr_metric_bundle(fluid):
    chance = fluid.layers.sigmoid(fluid.layers.slice(fluid.data("scores", [None, CLASSES]), [1], [0], [1]))
    click = fluid.layers.cast(fluid.data("label", [None, 1], "int64") > 0, "float32")
    return list(fluid.contrib.layers.ctr_metric_bundle(chance, click))


CASES = {
    "ctr_metric_bundle": ctr_metric_bundle,
    "precision_recall": precision_recall,
    "positive_negative_pair": positive_negative_pair,
    "mean_iou": mean_iou,
}


def feeds():
    rng = np.random.RandomState(11)
    return [
        {
            "scores": np.round(rng.uniform(0, 1, (rows, CLASSES)) * 8).astype("float32") / 8,
            "label": rng.randint(0, CLASSES, (rows, 1)).astype("int64"),
            "query": rng.randint(0, 2, (rows, 1)).astype("int64"),
            "weight": rng.uniform(0.5, 1.5, (rows, 1)).astype("float32"),
        }
        for rows in (7, 1, 12, 5)
    ]


def measured(fluid, name):
    main, startup = fluid.Program(), fluid.Program()
    with fluid.program_guard(main, startup), fluid.unique_name.guard():
        fetches = CASES[name](fluid)
    exe, block = fluid.Executor(fluid.CPUPlace()), main.global_block()
    with fluid.scope_guard(fluid.Scope()):
        exe.run(startup)
        steps = []
        for feed in feeds():
            feed = {key: value for key, value in feed.items() if key in block.vars}
            steps.append(
                [np.asarray(v).tolist() for v in exe.run(main, feed=feed, fetch_list=fetches)]
            )
    return steps


def summary(fluid):
    """The rows of the summary of convolutions, norms, pools and activations, for one sample."""
    main = fluid.Program()
    with fluid.program_guard(main, fluid.Program()), fluid.unique_name.guard():
        image = fluid.data("image", [1, 3, 16, 12])
        hidden = fluid.layers.conv2d(image, 4, 3, padding=1, bias_attr=False, act="relu")
        hidden = fluid.layers.batch_norm(hidden, act="tanh")
        hidden = fluid.layers.pool2d(hidden, 2, "max", 2)
        fluid.layers.leaky_relu(fluid.layers.conv2d(hidden, 6, 1, bias_attr=False, act="sigmoid"))
    text = io.StringIO()
    with contextlib.redirect_stdout(text):
        fluid.contrib.model_stat.summary(main)
    return text.getvalue().splitlines()


if __name__ == "__main__":
    import compact_json
    from paddle import fluid

    path = os.path.join(os.path.dirname(os.path.abspath(sys.argv[0])), "measures.json")
    record = {"steps": {name: measured(fluid, name) for name in CASES}, "summary": summary(fluid)}
    compact_json.write(path, record, 3)
