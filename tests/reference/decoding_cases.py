"""Programs that decode, which Paddle 1.8.5 and Rowlock build and run alike; for Python 3.7, too.

Run with a Python 3.7 that has paddlepaddle==1.8.5 to make decoding.json:  python decoding_cases.py
{"programs": {name: the blocks, as in control_flow.json}, "steps": {name: [[elements, lod] of each result]},
 "sentences": {name: the same}, "decoded": {name: elements of each result}}
"""

import os
import sys

import numpy as np

WORDS, WIDTH, START, END = 7, 4, 0, 1
UNRUN = ("sampled", "beam_endless")  # drawn by chance; need not end


class Nets:
    """Each method builds a net and returns what is fetched."""

    def __init__(self, fluid):
        self.fluid = fluid
        self.layers = fluid.layers

    def attr(self, name):
        return self.fluid.ParamAttr(name=name)

    def embedded(self, words):
        return self.fluid.embedding(words, size=[WORDS, WIDTH], param_attr=self.attr("words"))

    def logits(self, x, dims=1):
        return self.layers.fc(
            x, WORDS, num_flatten_dims=dims, param_attr=self.attr("out_w"), bias_attr=self.attr("out_b")
        )

    def cell(self, kind):
        make = getattr(self.layers, kind + "Cell")
        return make(WIDTH, param_attr=self.attr(None), bias_attr=self.attr(None))

    def states(self, kind):
        first = self.fluid.data("first", [None, WIDTH])
        return first if kind == "GRU" else [first, self.layers.scale(first, 0.5)]

    def beam(self, kind="GRU", beam_size=3, **keywords):
        layers = self.layers
        decoder = layers.BeamSearchDecoder(
            self.cell(kind), START, END, beam_size, self.embedded, lambda x: self.logits(x, 2)
        )
        options = dict(max_step_num=5, return_length=True)
        options.update(keywords)
        words, states, lengths = layers.dynamic_decode(decoder, self.states(kind), **options)
        return [words, states.log_probs, states.finished, states.lengths, lengths]

    def attended(self):
        """Beams over what an encoder wrote, as translators search."""
        layers = self.layers
        memory = self.fluid.data("memory", [None, 3, WIDTH])
        net = self

        class Cell(layers.RNNCell):
            def __init__(self):
                self.inner = net.cell("LSTM")

            def call(self, inputs, states, memory):
                query = layers.unsqueeze(inputs, [1])
                weights = layers.softmax(layers.matmul(query, memory, transpose_y=True))
                seen = layers.squeeze(layers.matmul(weights, memory), [1])
                return self.inner(layers.concat([inputs, seen], 1), states)

        decoder = layers.BeamSearchDecoder(Cell(), START, END, 4, self.embedded, lambda x: self.logits(x, 2))
        tiled = layers.BeamSearchDecoder.tile_beam_merge_with_batch(memory, 4)
        words, states = layers.dynamic_decode(decoder, self.states("LSTM"), max_step_num=6, memory=tiled)
        return [words, states.log_probs, states.lengths]

    def basic(self, helper, kind="GRU", **keywords):
        decoder = self.layers.BasicDecoder(self.cell(kind), helper, self.logits)
        options = dict(max_step_num=5, return_length=True)
        options.update(keywords)
        outputs, states, lengths = self.layers.dynamic_decode(decoder, self.states(kind), **options)
        states = states if kind == "LSTM" else [states]
        return [outputs.cell_outputs, outputs.sample_ids] + list(states) + [lengths]

    def greedy(self, kind="GRU", **keywords):
        tokens = self.fluid.data("tokens", [None], "int64")
        helper = self.layers.GreedyEmbeddingHelper(self.embedded, tokens, END)
        return self.basic(helper, kind, **keywords)

    def sampled(self):
        tokens = self.fluid.data("tokens", [None], "int64")
        helper = self.layers.SampleEmbeddingHelper(self.embedded, tokens, END, 0.7, 5)
        return self.basic(helper)

    def taught(self, kind="GRU", time_major=False, train=False, **keywords):
        """Reads a target; ``train`` adds a loss and its gradients."""
        layers = self.layers
        target = self.fluid.data("target", [4, None] if time_major else [None, 4], "int64")
        lengths = self.fluid.data("lengths", [None], "int64")
        helper = layers.TrainingHelper(self.embedded(target), lengths, time_major)
        results = self.basic(helper, kind, max_step_num=None, output_time_major=time_major, **keywords)
        if train:
            loss = layers.mean(layers.square(results[0])) + layers.mean(results[2])
            self.fluid.optimizer.SGD(0.1).minimize(loss)
            results = [loss, "out_w@GRAD", "words@GRAD"]
        return results

    def translated(self):
        """Beam search over sequences (LoD), as the translator of Paddle's book decodes."""
        layers = self.layers
        context = self.fluid.data("first", [None, WIDTH])
        ids = self.fluid.data("ids", [None, 1], "int64", lod_level=2)
        scores = self.fluid.data("scores", [None, 1], "float32", lod_level=2)
        limit = layers.fill_constant([1], "int64", 4)
        counter = layers.zeros([1], "int64", force_cpu=True)
        states = layers.array_write(context, counter)
        all_ids = layers.array_write(ids, counter)
        all_scores = layers.array_write(scores, counter)
        going = layers.less_than(counter, limit)
        loop = layers.While(going)
        with loop.block():
            pre_ids = layers.array_read(all_ids, counter)
            pre_state = layers.array_read(states, counter)
            pre_scores = layers.array_read(all_scores, counter)
            pre_state = layers.sequence_expand(pre_state, pre_scores)
            word = layers.reshape(self.embedded(pre_ids), [-1, WIDTH])
            state = layers.fc(
                [pre_state, word], WIDTH, act="tanh",
                param_attr=[self.attr("u"), self.attr("v")], bias_attr=self.attr("b"),
            )  # fmt: skip
            by_beam = layers.lod_reset(state, pre_scores)
            best, words = layers.topk(layers.softmax(self.logits(by_beam)), 3)
            total = layers.elementwise_add(layers.log(best), layers.reshape(pre_scores, [-1]), axis=0)
            ids, scores = layers.beam_search(pre_ids, pre_scores, words, total, 2, END)
            layers.increment(counter, 1, in_place=True)
            layers.array_write(state, counter, states)
            layers.array_write(ids, counter, all_ids)
            layers.array_write(scores, counter, all_scores)
            longer = layers.less_than(counter, limit)
            layers.logical_and(longer, layers.logical_not(layers.is_empty(ids)), out=going)
        return list(layers.beam_search_decode(all_ids, all_scores, 2, END))

    def cases(self):
        return {
            "beam": self.beam,
            "beam_lstm": lambda: self.beam("LSTM", 2),
            "beam_test": lambda: self.beam(is_test=True),
            "beam_imputed": lambda: self.beam(impute_finished=True, output_time_major=True),
            "beam_endless": lambda: self.beam("LSTM", 1, max_step_num=None),
            "attended": self.attended,
            "greedy": self.greedy,
            "greedy_lstm": lambda: self.greedy("LSTM"),
            "greedy_test": lambda: self.greedy(is_test=True, impute_finished=True),
            "sampled": self.sampled,
            "taught": self.taught,
            "taught_time_major": lambda: self.taught(time_major=True),
            "taught_imputed": lambda: self.taught("LSTM", impute_finished=True),
            "trained": lambda: self.taught(train=True),
            "translated": self.translated,
        }


def build(fluid, name):
    """Return main and startup programs, and what to fetch."""
    nets, main, startup = Nets(fluid), fluid.Program(), fluid.Program()
    with fluid.program_guard(main, startup), fluid.unique_name.guard():
        fetches = nets.cases()[name]()
    return main, startup, fetches


# -- ops alone ---------------------------------------------------------------------------------------------


def lod_tensor(fluid, array, levels):
    tensor = fluid.LoDTensor()
    tensor.set(array, fluid.CPUPlace())
    tensor.set_lod(levels)
    return tensor


def step(counts, prefixes, width=4, **attrs):
    """One step of beam search: sources of so many hypotheses, and of each so many prefixes."""

    def build(fluid):
        levels = [np.cumsum([0] + list(many)).tolist() for many in (counts, prefixes)]
        rows = levels[-1][-1]
        draw = np.random.RandomState(attrs.get("seed", 0) + rows)
        steps = attrs.get("rounded", 1000)
        values = {
            "pre_ids": draw.randint(0, attrs.get("high", 3), (rows, 1)).astype("int64"),
            "pre_scores": (draw.randint(1, steps, (rows, 1)) / float(steps)).astype("float32"),
            "ids": draw.randint(0, 9, (rows, width)).astype("int64"),
            "scores": (draw.randint(1, steps, (rows, width)) / float(steps)).astype("float32"),
        }
        if attrs.get("named") is False:
            del values["ids"]
        data = {
            name: fluid.data(name, [None, array.shape[1]], str(array.dtype), lod_level=2)
            for name, array in values.items()
        }
        results = fluid.layers.beam_search(
            data["pre_ids"], data["pre_scores"], data.get("ids"), data["scores"], attrs.get("beam", 2),
            attrs.get("end", 0), attrs.get("level", 0), attrs.get("accumulated", True), return_parent_idx=True,
        )  # fmt: skip
        feed = {name: lod_tensor(fluid, array, levels) for name, array in values.items()}
        return list(results), feed

    return build


STEPS = {
    "accumulated": step([2, 2], [1, 1, 1, 1]),
    "probabilities": step([2, 2], [1, 1, 1, 1], accumulated=False),
    "first": step([1, 1, 1], [1, 1, 1], beam=4, high=9, end=9),
    "several": step([3, 2, 1], [1, 2, 0, 1, 1, 2], beam=3),
    "pruned": step([2, 2, 2], [1, 1, 2, 0, 1, 1], high=1, seed=2, end=0, beam=2, accumulated=False),
    "some_ended": step([2, 3], [1, 1, 1, 1, 1], high=2, seed=4, beam=3),
    "ended_not_accumulated": step([2, 3], [1, 1, 1, 1, 1], high=2, seed=5, accumulated=False),
    "columns": step([2, 2], [1, 1, 1, 1], named=False, end=3),
    "inner": step([2, 2], [1, 2, 1, 1], level=1),
    "empty_source": step([2, 0, 1], [2, 1, 1]),
    "wide_beam": step([2, 1], [1, 1, 1], beam=20),
    "beam_of_one": step([1, 1, 2], [1, 1, 1, 1], beam=1, high=9),
    "one_candidate": step([2, 2], [1, 1, 1, 1], width=1, beam=3),
    "ties": step([2, 2], [1, 1, 2, 1], rounded=3, width=6, beam=4, high=9),
    "ties_2": step([3, 2], [1, 1, 1, 2, 1], rounded=2, width=5, beam=5, seed=3),
    "ties_3": step([2, 3], [2, 1, 1, 1, 1], rounded=4, width=8, beam=3, seed=8, high=9),
}
STEPS.update(
    ("drawn_%d" % k, step([2, 3, 1], [1, 1, 2, 1, 0, 3], rounded=9, beam=1 + k % 5, seed=100 * k, end=k % 3))
    for k in range(10)
)


def sentences(*steps, **attrs):
    """Arrays of (words, scores, levels), which become hypotheses."""

    def build(fluid):
        layers, feed, arrays = fluid.layers, {}, [None, None]
        for number, (words, scores, levels) in enumerate(steps):
            index = layers.fill_constant([1], "int64", number)
            for k, (name, values, dtype) in enumerate((("ids", words, "int64"), ("scores", scores, "float32"))):
                name = "%s_%d" % (name, number)
                x = fluid.data(name, [None, 1], dtype, lod_level=2)
                arrays[k] = layers.array_write(x, index, arrays[k])
                feed[name] = lod_tensor(fluid, np.array(values, dtype).reshape(-1, 1), levels)
        results = layers.beam_search_decode(arrays[0], arrays[1], attrs.get("beam_size", 2), attrs.get("end_id", 0))
        return list(results), feed

    return build


BEGIN = ([1, 2], [0, 0], [[0, 1, 2], [0, 1, 2]])
FORK = ([4, 2, 2, 1], [0.5, 0.3, 0.6, 0.3], [[0, 1, 2], [0, 2, 4]])
ON = ([4, 2, 3, 8], [0.5, 0.6, 0.9, 0.7], [[0, 2, 4], [0, 1, 2, 3, 4]])
ENDING = ([0, 2, 0, 0], [0.5, 0.6, 0.9, 0.7], [[0, 2, 4], [0, 1, 2, 3, 4]])
ONE_SOURCE = ([0, 7], [0.5, 0.8], [[0, 2, 4], [0, 1, 2, 2, 2]])
NOTHING = ([], [], [[0, 2, 2], [0, 0, 0]])
LEFT = ([2, 5, 3, 8], [0.5, 0.4, 0.9, 0.7], [[0, 2, 4], [0, 2, 2, 2, 4]])
SENTENCES = {  # steps, and how they are decoded
    "straight": ([BEGIN, FORK, ON], {}),
    "one_ends": ([BEGIN, FORK, ENDING, ONE_SOURCE], {}),
    "all_end": ([BEGIN, FORK, ENDING, ONE_SOURCE, NOTHING], {}),
    "crossed": ([BEGIN, FORK, LEFT, ON], {}),
    "begun": ([BEGIN], {"beam_size": 1}),
    "ends_again": ([BEGIN, FORK, ENDING, ENDING], {}),
    "other_end": ([BEGIN, FORK, ON, ON], {"end_id": 4}),
}


def run_op(fluid, build):
    """Return shape, elements and LoD of each result."""
    main = fluid.Program()
    with fluid.program_guard(main, fluid.Program()), fluid.unique_name.guard():
        results, feed = build(fluid)
    exe = fluid.Executor(fluid.CPUPlace())
    with fluid.scope_guard(fluid.Scope()):
        values = exe.run(main, feed=feed, fetch_list=results, return_numpy=False)
    return [[np.array(v).ravel().astype("float64").round(6).tolist(), v.lod()] for v in values]


# -- whole programs ----------------------------------------------------------------------------------------


def initial(name, shape):
    """A parameter's value; the end becomes likely after some steps."""
    seed = sum(map(ord, name)) % 1000
    values = np.random.RandomState(seed).uniform(-1.5, 1.5, shape)
    return values.astype("float32")


def feeds(fluid, main):
    """What a net is fed: three samples."""
    draw = np.random.RandomState(3)
    begun = [[0, 1, 2, 3], [0, 1, 2, 3]]
    values = {
        "first": draw.uniform(-1, 1, (3, WIDTH)).astype("float32"),
        "memory": draw.uniform(-1, 1, (3, 3, WIDTH)).astype("float32"),
        "tokens": np.zeros(3, "int64"),
        "target": draw.randint(0, WORDS, (3, 4)).astype("int64"),
        "lengths": np.array([4, 1, 2], "int64"),
        "ids": lod_tensor(fluid, np.zeros((3, 1), "int64"), begun),
        "scores": lod_tensor(fluid, np.zeros((3, 1), "float32"), begun),
    }
    variables = main.global_block().vars
    if "target" in variables and variables["target"].shape[0] == 4:
        values["target"] = values["target"].T.copy()
    return {name: value for name, value in values.items() if name in variables}


def start(fluid, name):
    """Return a net's executor, program and fetches, with its parameters set in the scope in force."""
    main, startup, fetches = build(fluid, name)
    exe = fluid.Executor(fluid.CPUPlace())
    exe.run(startup)
    for p in main.all_parameters():
        tensor = fluid.global_scope().find_var(p.name).get_tensor()
        tensor.set(initial(p.name, p.shape), fluid.CPUPlace())
    return exe, main, fetches


def decode(fluid, name):
    """Return shape, elements and LoD of each result."""
    with fluid.scope_guard(fluid.Scope()):
        exe, main, fetches = start(fluid, name)
        values = exe.run(main, feed=feeds(fluid, main), fetch_list=fetches, return_numpy=False)
    return [
        [list(np.array(v).shape), np.array(v).ravel().astype("float64").tolist(), v.lod()] for v in values
    ]


if __name__ == "__main__":
    import compact_json
    from control_flow_cases import described
    from paddle import fluid

    path = os.path.join(os.path.dirname(os.path.abspath(sys.argv[0])), "decoding.json")
    names = list(Nets(fluid).cases())
    record = {
        "programs": {name: described(build(fluid, name)[0]) for name in names},
        "steps": {name: run_op(fluid, case) for name, case in STEPS.items()},
        "sentences": {
            name: run_op(fluid, sentences(*steps, **attrs))
            for name, (steps, attrs) in SENTENCES.items()
        },
        "decoded": {name: decode(fluid, name) for name in names if name not in UNRUN},
    }
    compact_json.write(path, record, 3)
