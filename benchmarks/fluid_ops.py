"""Which ops of fluid take a processor about as long as in Paddle 1.8.5, or longer.

``OMP_NUM_THREADS=1 python -m benchmarks.fluid_ops --paddle PYTHON [CASE ...]``: detection, sequences, metrics,
draws, sorts. Nearly all others that layers make take less than half of Paddle's time. Each case is a program of
one layer on one place, with its gradient where it has one; each step has a feed of its own, as in training, so
that sizes which come out of the data are new. Rowlock and Paddle take turns, case by case, each in a process
that lasts; printed are medians of milliseconds of a processor, the slowest beside Paddle's first. Python 3.7
runs this, too.
"""

import argparse
import importlib
import sys
import time
from pathlib import Path

import numpy as np

sys.path.insert(0, str(Path(__file__).parents[1]))

from benchmarks.workers.serve import serve

WARM, STEPS = 10, 11
SEQUENCES, LENGTH = 32, 40
ROWS = SEQUENCES * LENGTH


class Case:
    """A layer of variables, what these are fed, and those to which a gradient goes back."""

    def __init__(self, build, feeds, back=()):
        self.build, self.feeds, self.back = build, feeds, back


class Sequences:
    """Values of rows, cut into sequences of the same length."""

    def __init__(self, rows, count=SEQUENCES):
        self.rows, self.lengths = rows, [len(rows) // count] * count


def normal(*shape):
    return lambda rng: rng.standard_normal(shape).astype("float32")


def uniform(*shape):
    return lambda rng: rng.random_sample(shape).astype("float32")


def numbers(below, *shape, **how):
    return lambda rng: rng.randint(0, below, shape).astype(how.get("dtype", "int64"))


def filled(value, *shape, **how):
    return lambda rng: np.full(shape, value, how.get("dtype", "float32"))


def boxes(count, side=300.0, images=0):
    """Return a draw of boxes [count, 4], or of as many for each of some images."""

    def draw(rng):
        first = rng.random_sample((count, 2)) * 0.7 * side
        size = rng.random_sample((count, 2)) * 0.3 * side + 2
        return np.concatenate([first, first + size], 1).astype("float32")

    return (lambda rng: np.stack([draw(rng) for _ in range(images)])) if images else draw


def cut(draw, count=SEQUENCES):
    return lambda rng: Sequences(draw(rng), count)


def crf(L, fluid, v):
    L.linear_chain_crf(v["x"], v["y"], fluid.ParamAttr(name="crf"))
    return L.crf_decoding(v["x"], fluid.ParamAttr(name="crf"))


def anchors_assigned(L, fluid, v):
    names = ("deltas", "scores", "anchors", "variances", "objects", "crowd", "info")
    return L.rpn_target_assign(*[v[name] for name in names], use_random=False)[0]


def objects_assigned(L, fluid, v):
    names = ("deltas", "scores", "anchors", "variances", "objects", "classes", "crowd", "info")
    return L.retinanet_target_assign(*[v[name] for name in names], num_classes=80)[0]


_SENTENCES = {"x": cut(normal(ROWS, 40)), "y": cut(numbers(40, ROWS, 1))}
_IMAGES = normal(2, 32, 28, 28)
_PAIRS = {"x": cut(normal(320, 32), 8), "y": cut(normal(320, 32), 8)}
_MASKED = {"x": _IMAGES, "o": normal(2, 18, 28, 28), "m": uniform(2, 9, 28, 28)}
CASES = {
    "roi_pool": Case(
        lambda L, fluid, v: L.roi_pool(v["x"], v["r"], 7, 7, 1 / 16.0),
        {"x": normal(2, 64, 50, 50), "r": cut(boxes(256, 800.0), 2)},
        ["x"],
    ),
    "psroi_pool": Case(
        lambda L, fluid, v: L.psroi_pool(v["x"], v["r"], 8, 1 / 16.0, 7, 7),
        {"x": normal(2, 392, 50, 50), "r": cut(boxes(128, 800.0), 2)},
        ["x"],
    ),
    "deformable_conv": Case(  # image by image: of more than there are, Paddle computes none
        lambda L, fluid, v: L.deformable_conv(
            v["x"], v["o"], v["m"], 32, 3, padding=1, im2col_step=1
        ),
        _MASKED,
        list(_MASKED),
    ),
    "rpn_target_assign": Case(
        anchors_assigned,
        {
            "deltas": normal(1, 21546, 4),
            "scores": normal(1, 21546, 1),
            "anchors": boxes(21546, 900.0),
            "variances": filled(0.1, 21546, 4),
            "objects": cut(boxes(12, 900.0), 1),
            "crowd": cut(filled(0, 12, 1, dtype="int32"), 1),
            "info": filled(900, 1, 3),
        },
    ),
    "distribute_fpn_proposals": Case(
        lambda L, fluid, v: L.distribute_fpn_proposals(v["b"], 2, 5, 4, 224)[0][0],
        {"b": cut(boxes(2000, 800.0), 1)},
    ),
    "iou_similarity": Case(
        lambda L, fluid, v: L.iou_similarity(v["x"], v["y"]),
        {"x": cut(boxes(64), 1), "y": boxes(4000)},
    ),
    "yolo_box": Case(
        lambda L, fluid, v: L.yolo_box(v["x"], v["s"], [10, 13, 16, 30, 33, 23], 80, 0.01, 32)[0],
        {"x": normal(8, 255, 19, 19), "s": filled(608, 8, 2, dtype="int32")},
    ),
    "warpctc": Case(
        lambda L, fluid, v: L.warpctc(v["x"], v["y"], blank=39),
        {"x": cut(normal(3 * ROWS, 40)), "y": cut(numbers(39, ROWS // 2, 1, dtype="int32"))},
        ["x"],
    ),
    "crf_decoding": Case(crf, _SENTENCES),
    "sampling_id": Case(
        lambda L, fluid, v: L.sampling_id(L.softmax(v["x"])), {"x": normal(256, 1000)}
    ),
    "mean_iou": Case(
        lambda L, fluid, v: L.mean_iou(v["x"], v["y"], 21)[0],
        {name: numbers(21, 100000, dtype="int32") for name in "xy"},
    ),
    "retinanet_target_assign": Case(
        objects_assigned,
        {
            "deltas": normal(1, 20000, 4),
            "scores": normal(1, 20000, 80),
            "anchors": boxes(20000, 900.0),
            "variances": filled(0.1, 20000, 4),
            "objects": cut(boxes(12, 900.0), 1),
            "classes": cut(lambda rng: rng.randint(1, 80, (12, 1)).astype("int32"), 1),
            "crowd": cut(filled(0, 12, 1, dtype="int32"), 1),
            "info": filled(900, 1, 3),
        },
    ),
    "target_assign": Case(
        lambda L, fluid, v: L.target_assign(v["x"], v["i"])[0],
        {
            "x": cut(normal(48, 1, 4), 4),
            "i": lambda rng: rng.randint(-1, 12, (4, 8000)).astype("int32"),
        },
    ),
    "box_decoder_and_assign": Case(
        lambda L, fluid, v: L.box_decoder_and_assign(v["b"], v["variances"], v["d"], v["s"], 4.1)[
            1
        ],
        {
            "b": boxes(1000),
            "variances": filled(0.1, 4),
            "d": normal(1000, 81 * 4),
            "s": uniform(1000, 81),
        },
    ),
    "detection_output": Case(
        lambda L, fluid, v: L.detection_output(v["d"], v["s"], v["b"], v["v"]),
        {
            "d": lambda rng: normal(4, 4000, 4)(rng) * np.float32(0.1),
            "s": lambda rng: uniform(4, 4000, 21)(rng) ** 4,
            "b": boxes(4000, 1.0),
            "v": filled(0.1, 4000, 4),
        },
    ),
    "multiclass_nms, few boxes": Case(
        lambda L, fluid, v: L.multiclass_nms(v["b"], v["s"], 0.3, 100, 100, 0.45),
        {"b": boxes(300, images=4), "s": uniform(4, 3, 300)},
    ),
    "matrix_nms": Case(
        lambda L, fluid, v: L.matrix_nms(v["b"], v["s"], 0.01, 0.1, 400, 200)[0],
        {"b": boxes(2000, images=4), "s": lambda rng: uniform(4, 21, 2000)(rng) ** 8},
    ),
    "locality_aware_nms": Case(
        lambda L, fluid, v: L.locality_aware_nms(v["b"], v["s"], 0.01, 400, 200, 0.45),
        {"b": boxes(2000, images=1), "s": uniform(1, 1, 2000)},
    ),
    "yolov3_loss": Case(
        lambda L, fluid, v: L.yolov3_loss(
            v["x"], v["b"], v["y"], list(range(10, 130, 10)), [0, 1, 2], 80, 0.7, 32
        ),
        {
            "x": normal(4, 255, 19, 19),
            "b": lambda rng: uniform(4, 20, 4)(rng) * np.float32(0.3) + np.float32(0.1),
            "y": numbers(80, 4, 20, dtype="int32"),
        },
        ["x"],
    ),
    "similarity_focus": Case(
        lambda L, fluid, v: L.similarity_focus(v["x"], 1, [0]), {"x": normal(8, 4, 32, 32)}
    ),
    "filter_by_instag": Case(
        lambda L, fluid, v: L.filter_by_instag(v["x"], v["t"], v["f"], True)[0],
        {
            "x": cut(normal(512, 64), 512),
            "t": cut(numbers(10, 512, 1), 512),
            "f": numbers(10, 2),
        },
        ["x"],
    ),
    "ctc_greedy_decoder": Case(
        lambda L, fluid, v: L.ctc_greedy_decoder(v["x"], 39), {"x": cut(normal(3 * ROWS, 40))}
    ),
    "sequence_unpad": Case(
        lambda L, fluid, v: L.sequence_unpad(v["x"], v["n"]),
        {"x": normal(32, 40, 128), "n": lambda rng: rng.randint(10, 40, (32,)).astype("int64")},
        ["x"],
    ),
    "sequence_topk_avg_pooling": Case(
        lambda L, fluid, v: fluid.contrib.layers.sequence_topk_avg_pooling(
            v["x"], v["r"], v["c"], [1, 3, 5], 4
        ),
        {"x": cut(normal(12800, 1), 8), "r": cut(normal(160, 1), 8), "c": cut(normal(160, 1), 8)},
        ["x"],
    ),
    "match_matrix_tensor": Case(
        lambda L, fluid, v: fluid.contrib.layers.match_matrix_tensor(v["x"], v["y"], 4)[0],
        _PAIRS,
        list(_PAIRS),
    ),
    "var_conv_2d": Case(
        lambda L, fluid, v: fluid.contrib.layers.var_conv_2d(v["x"], v["r"], v["c"], 4, 8, [3, 3]),
        {"x": cut(normal(51200, 1), 8), "r": cut(normal(320, 1), 8), "c": cut(normal(320, 1), 8)},
        ["x"],
    ),
    "where": Case(
        lambda L, fluid, v: L.where(v["x"]), {"x": lambda rng: rng.random_sample((256, 1000)) > 0.9}
    ),
    "topk": Case(lambda L, fluid, v: L.topk(v["x"], 100)[0], {"x": normal(256, 1000)}),
    "gaussian_random": Case(
        lambda L, fluid, v: L.elementwise_add(v["x"], L.gaussian_random([2, 32, 28, 28])),
        {"x": _IMAGES},
    ),
    "elementwise_mod": Case(
        lambda L, fluid, v: L.elementwise_mod(v["x"], v["y"]),
        {"x": numbers(1000, 256, 1000), "y": filled(7, 256, 1000, dtype="int64")},
    ),
    "cast": Case(lambda L, fluid, v: L.cast(v["x"], "int64"), {"x": normal(256, 1000)}),
}


def fed(fluid, value):
    if not isinstance(value, Sequences):
        return value
    return fluid.create_lod_tensor(value.rows, [value.lengths], fluid.CPUPlace())


def median(fluid, case):
    """Return the median of milliseconds of a processor that a step takes."""
    rng, main, startup = np.random.RandomState(0), fluid.Program(), fluid.Program()
    batches = [{name: draw(rng) for name, draw in case.feeds.items()} for _ in range(WARM + STEPS)]
    with fluid.program_guard(main, startup):
        variables = {}
        for name, value in batches[0].items():
            level, rows = isinstance(value, Sequences), getattr(value, "rows", value)
            shape = [None, *rows.shape[1:]] if name not in ("anchors", "variances") else rows.shape
            variables[name] = fluid.data(name, shape, str(rows.dtype), lod_level=int(level))
            variables[name].stop_gradient = name not in case.back
        results = [case.build(fluid.layers, fluid, variables)]
        if case.back:
            loss = fluid.layers.reduce_sum(fluid.layers.square(results[0]))
            results = [loss, *fluid.gradients(loss, [variables[name] for name in case.back])]
    exe = fluid.Executor(fluid.CPUPlace())
    exe.run(startup)
    feeds = [{name: fed(fluid, value) for name, value in batch.items()} for batch in batches]
    times = []
    for step in range(WARM + STEPS):
        began = time.process_time()
        exe.run(main, feed=feeds[step], fetch_list=results, return_numpy=False)
        times.append(1e3 * (time.process_time() - began))
    return float(np.median(times[WARM:]))


def serve_cases(package):
    """Answer with the medians of cases, as a contender."""
    fluid = importlib.import_module(package + ".fluid")
    serve(dict, lambda name: CASES[name], lambda case, count: {"median": median(fluid, case)})


def median_of(contender, name):
    """Return a contender's median of a case, or the text of an error."""
    try:
        contender.ask(do="build", model=name)
        return contender.ask(do="run", steps=1)["median"]
    except RuntimeError as error:
        return str(error).strip().split("\n")[-1]


def main(options):
    from benchmarks.contenders import Contender  # Python 3.7 cannot read it

    pythons = {"rowlock": sys.executable, "paddle": options.paddle}
    contenders = [Contender(n, [python, __file__, "--serve", n]) for n, python in pythons.items()]
    rows = []
    try:
        if not all([contender.start() for contender in contenders]):
            return
        for name in options.cases:
            ours, theirs = (median_of(contender, name) for contender in contenders)
            both = isinstance(ours, float) and isinstance(theirs, float)
            rows.append((ours / theirs if both else np.inf, name, ours, theirs))
    finally:
        for contender in contenders:
            contender.close()
    for ratio, name, *times in sorted(rows, reverse=True):
        texts = ["{:8.2f} ms".format(t) if isinstance(t, float) else t for t in times]
        print("{:26} rowlock {}, Paddle {}: {:.2f}".format(name, *texts, ratio))


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("cases", nargs="*", default=list(CASES), metavar="CASE")
    parser.add_argument("--paddle", help="an interpreter that has Paddle 1.8.5")
    parser.add_argument("--serve", help=argparse.SUPPRESS)
    chosen = parser.parse_args()
    unknown = [name for name in chosen.cases if name not in CASES]
    if unknown or not (chosen.serve or chosen.paddle):
        parser.error("name --paddle, and cases among " + ", ".join(CASES))
    serve_cases(chosen.serve) if chosen.serve else main(chosen)
