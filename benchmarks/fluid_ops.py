"""Which ops of fluid take a processor longer than in Paddle 1.8.5: those of which PyTorch has no like.

``OMP_NUM_THREADS=1 python -m benchmarks.fluid_ops --paddle PYTHON [CASE ...]``: detection, sequences, metrics,
samples of classes. Each case is a program of one layer on one place, with its gradient where it has one.
Rowlock and Paddle take turns, case by case, each in a process that lasts; printed are medians of milliseconds
of a processor, the slowest beside Paddle's first. Python 3.7 runs this, too.
"""

import argparse
import json
import subprocess
import sys
import time

import numpy as np

WARM, STEPS, FEEDS = 4, 9, 5
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


def proposals(L, fluid, v):
    sizes, ratios = [32.0, 64.0, 128.0, 256.0, 512.0], [0.5, 1.0, 2.0]
    variances = [0.1, 0.1, 0.2, 0.2]
    anchors = L.anchor_generator(v["map"], sizes, ratios, variances, [16.0, 16.0])
    limits = {"pre_nms_top_n": 12000, "post_nms_top_n": 2000, "nms_thresh": 0.7, "min_size": 0.0}
    return L.generate_proposals(v["scores"], v["deltas"], v["info"], *anchors, **limits)[0]


def anchors_assigned(L, fluid, v):
    names = ("deltas", "scores", "anchors", "variances", "objects", "crowd", "info")
    return L.rpn_target_assign(*[v[name] for name in names], use_random=False)[0]


def regions_labelled(L, fluid, v):
    names = ("regions", "classes", "crowd", "objects", "info")
    how = {"class_nums": 81, "use_random": False}
    return L.generate_proposal_labels(*[v[name] for name in names], **how)[0]


def region_pool(name, *how):
    feeds = {"x": normal(2, 64, 50, 50), "r": cut(boxes(256, 800.0), 2)}
    return Case(lambda L, fluid, v: getattr(L, name)(v["x"], v["r"], *how), feeds, ["x"])


_SENTENCES = {"x": cut(normal(ROWS, 40)), "y": cut(numbers(40, ROWS, 1))}
_WORDS = {"x": cut(numbers(21, ROWS, 1)), "y": cut(numbers(21, ROWS, 1))}
_CLASSES = {"x": normal(256, 64), "y": numbers(5000, 256, 1)}
CASES = {
    "roi_pool": region_pool("roi_pool", 7, 7, 1 / 16.0),
    "roi_align": region_pool("roi_align", 7, 7, 1 / 16.0, 2),
    "multiclass_nms": Case(
        lambda L, fluid, v: L.multiclass_nms(v["b"], v["s"], 0.01, 400, 200, 0.45),
        {"b": boxes(2000, images=4), "s": lambda rng: uniform(4, 21, 2000)(rng) ** 8},
    ),
    "generate_proposals": Case(
        proposals,
        {
            "map": uniform(1, 8, 38, 63),
            "scores": uniform(1, 15, 38, 63),
            "deltas": lambda rng: normal(1, 60, 38, 63)(rng) * np.float32(0.1),
            "info": lambda rng: np.array([[600, 1000, 1]], "float32"),
        },
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
    "generate_proposal_labels": Case(
        regions_labelled,
        {
            "regions": cut(boxes(2000, 900.0), 1),
            "classes": cut(lambda rng: rng.randint(1, 81, (12, 1)).astype("int32"), 1),
            "crowd": cut(filled(0, 12, 1, dtype="int32"), 1),
            "objects": cut(boxes(12, 900.0), 1),
            "info": filled(900, 1, 3),
        },
    ),
    "distribute_fpn_proposals": Case(
        lambda L, fluid, v: L.distribute_fpn_proposals(v["b"], 2, 5, 4, 224)[0][0],
        {"b": cut(boxes(2000, 800.0), 1)},
    ),
    "bipartite_match": Case(
        lambda L, fluid, v: L.bipartite_match(v["x"], "per_prediction", 0.5)[0],
        {"x": cut(uniform(64, 2000), 4)},
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
    "linear_chain_crf": Case(
        lambda L, fluid, v: L.linear_chain_crf(v["x"], v["y"]), _SENTENCES, ["x"]
    ),
    "crf_decoding": Case(crf, _SENTENCES),
    "edit_distance": Case(lambda L, fluid, v: L.edit_distance(v["x"], v["y"])[0], _WORDS),
    "chunk_eval": Case(lambda L, fluid, v: L.chunk_eval(v["x"], v["y"], "IOB", 10)[0], _WORDS),
    "nce": Case(
        lambda L, fluid, v: L.nce(v["x"], v["y"], 5000, num_neg_samples=20), _CLASSES, ["x"]
    ),
    "hsigmoid": Case(lambda L, fluid, v: L.hsigmoid(v["x"], v["y"], 5000), _CLASSES, ["x"]),
    "unique": Case(lambda L, fluid, v: L.unique_with_counts(v["x"])[0], {"x": numbers(500, 20000)}),
    "sampling_id": Case(
        lambda L, fluid, v: L.sampling_id(L.softmax(v["x"])), {"x": normal(256, 1000)}
    ),
    "auc": Case(
        lambda L, fluid, v: L.auc(v["x"], v["y"])[0],
        {"x": uniform(4096, 2), "y": numbers(2, 4096, 1)},
    ),
    "mean_iou": Case(
        lambda L, fluid, v: L.mean_iou(v["x"], v["y"], 21)[0],
        {name: numbers(21, 100000, dtype="int32") for name in "xy"},
    ),
}


def fed(fluid, value):
    if not isinstance(value, Sequences):
        return value
    return fluid.create_lod_tensor(value.rows, [value.lengths], fluid.CPUPlace())


def median(fluid, case):
    """Return the median of milliseconds of a processor that a step takes."""
    rng, main, startup = np.random.RandomState(0), fluid.Program(), fluid.Program()
    batches = [{name: draw(rng) for name, draw in case.feeds.items()} for _ in range(FEEDS)]
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
        exe.run(main, feed=feeds[step % FEEDS], fetch_list=results, return_numpy=False)
        times.append(1e3 * (time.process_time() - began))
    return float(np.median(times[WARM:]))


def serve(package):
    """Answer each name of a case with its median, or what it raised: a line of JSON each."""
    fluid = __import__(package + ".fluid", fromlist=["fluid"])
    for line in sys.stdin:
        try:
            answer = median(fluid, CASES[line.strip()])
        except Exception as error:
            answer = str(error).strip().split("\n")[-1]
        print("answer " + json.dumps(answer), flush=True)


class Contender:
    """A process that serves cases."""

    def __init__(self, interpreter, package):
        command = [interpreter, __file__, "--serve", package]
        pipe = {"stdin": subprocess.PIPE, "stdout": subprocess.PIPE, "stderr": subprocess.DEVNULL}
        self._process = subprocess.Popen(command, universal_newlines=True, **pipe)

    def ask(self, name):
        """Return the median of a case, or the text of an error."""
        self._process.stdin.write(name + "\n")
        self._process.stdin.flush()
        for line in self._process.stdout:
            if line.startswith("answer "):
                return json.loads(line[len("answer ") :])
        return "its process ended ({})".format(self._process.wait())

    def close(self):
        self._process.stdin.close()
        self._process.wait()


def main(options):
    contenders = [Contender(sys.executable, "rowlock"), Contender(options.paddle, "paddle")]
    rows = []
    for name in options.cases:
        ours, theirs = (contender.ask(name) for contender in contenders)
        both = isinstance(ours, float) and isinstance(theirs, float)
        rows.append((ours / theirs if both else np.inf, name, ours, theirs))
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
    serve(chosen.serve) if chosen.serve else main(chosen)
