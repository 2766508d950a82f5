"""What ``paddle.metric`` gives for the same batches in Paddle 3.3.1 and here.

Run with a Python that has paddlepaddle==3.3.1 to make metrics_2x.json:  python metrics_2x.py
{name: [value after each batch, ...]}
"""

import os
import sys

import numpy as np

CLASSES = 4


def batches():
    """Scores [n, 4], labels [n, 1], and probabilities [n, 2] of whether the label is odd; some are equal."""
    rng = np.random.RandomState(21)
    for rows in (6, 1, 9):
        scores = rng.permutation(rows * CLASSES).reshape(rows, CLASSES).astype("float32") / 10
        chance = np.round(rng.uniform(0, 1, (rows, 1)), 1).astype("float32")
        yield scores, rng.randint(0, CLASSES, (rows, 1)), np.hstack([1 - chance, chance])


def run(exe, static, build, **feed):
    """Run what ``build`` makes of variables like the arrays."""
    main = static.Program()
    with static.program_guard(main, static.Program()):
        out = build(
            **{
                key: static.data(key, [None] + list(a.shape[1:]), a.dtype.name)
                for key, a in feed.items()
            }
        )
    return np.asarray(exe.run(main, feed=feed, fetch_list=[out])[0])


def plain(value):
    return np.asarray(value, "float64").tolist()


def accuracies(paddle, exe, topk):
    static, metric, record = (
        paddle.static,
        paddle.metric.Accuracy(topk=topk),
        [paddle.metric.Accuracy(topk=topk).name()],
    )
    for x, y, _ in batches():
        one_hot = np.eye(CLASSES, dtype="float32")[y[:, 0]]
        for label in (y, one_hot):
            hits = run(exe, static, lambda x, y: metric.compute(x, y), x=x, y=label)
            record.append(
                [
                    list(hits.shape),
                    plain(hits),
                    plain(metric.update(hits)),
                    plain(metric.accumulate()),
                ]
            )
    metric.reset()
    return record + [plain(metric.accumulate())]


def of_chances(paddle, kind):
    metric, record = getattr(paddle.metric, kind)(), []
    for _, y, chances in batches():
        metric.update(chances if kind == "Auc" else chances[:, 1], y % 2)
        record.append(plain(metric.accumulate()))
    metric.reset()
    return [metric.name()] + record + [plain(metric.accumulate())]


def layer(paddle, exe, k):
    def build(x, y):
        return paddle.metric.accuracy(input=x, label=y, k=k)

    values = [run(exe, paddle.static, build, x=x, y=y) for x, y, _ in batches()]
    return [float(v.item()) for v in values]  # of no dimensions in 3.x, of one element before


def results(paddle, exe):
    return {
        "Accuracy": accuracies(paddle, exe, (1,)),
        "Accuracy_1_3": accuracies(paddle, exe, (1, 3)),
        "accuracy_1": layer(paddle, exe, 1),
        "accuracy_2": layer(paddle, exe, 2),
        "Precision": of_chances(paddle, "Precision"),
        "Recall": of_chances(paddle, "Recall"),
        "Auc": of_chances(paddle, "Auc"),
    }


if __name__ == "__main__":
    import compact_json
    import paddle

    paddle.enable_static()
    path = os.path.join(os.path.dirname(os.path.abspath(sys.argv[0])), "metrics_2x.json")
    compact_json.write(path, results(paddle, paddle.static.Executor(paddle.CPUPlace())), 2)
