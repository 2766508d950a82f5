"""Nets of recommenders and of a policy in the static style of Paddle 2.x, with sizes that only a step tells.

``python tests/reference/recall_nets.py`` writes ``recall_nets.json``, the losses of Paddle 3.3.1, where that is.
"""

import zlib
from pathlib import Path

import numpy as np

STEPS, ROWS = 20, 8
FAR = -(2.0**32) + 1


def initial(name, shape):
    """Return the value that a parameter begins with."""
    draw = np.random.RandomState(zlib.crc32(name.encode()) & 0xFFFF)
    return draw.uniform(-0.4, 0.4, shape).astype("float32")


class Nets:
    """Each method builds a net and returns its loss and a function of a generator that returns a feed."""

    def __init__(self, paddle):
        self.paddle, self.nn, self.F = paddle, paddle.nn, paddle.nn.functional

    def attr(self, name, **more):
        return self.paddle.ParamAttr(name=name, **more)

    def linear(self, name, *sizes):
        return self.nn.Linear(*sizes, weight_attr=self.attr(name + "_w"), bias_attr=self.attr(name + "_b"))

    def data(self, name, shape, dtype="float32"):
        return self.paddle.static.data(name, shape, dtype)

    def squash(self, vectors):
        square = self.paddle.sum(self.paddle.square(vectors), axis=-1, keepdim=True)
        return square / (1 + square) / self.paddle.sqrt(square + 1e-8) * vectors

    def capsules(self):
        """Interests of a user by routing between capsules: as many logits as there are users in a batch."""
        paddle, F, steps, width, interests = self.paddle, self.F, 7, 6, 3
        items, length = self.data("items", [-1, steps], "int64"), self.data("length", [-1, 1], "int64")
        label = self.data("label", [-1, 1], "int64")
        table = self.nn.Embedding(25, width, padding_idx=0, weight_attr=self.attr("table"))
        users = paddle.shape(length)[0]
        places = paddle.arange(0, steps, 1).unsqueeze(0).expand(shape=(users, steps)).reshape((users, -1, steps))
        mask = places < paddle.tile(length, [1, interests]).unsqueeze(-1)
        low = table(items)
        fixed = low.detach()
        routing = paddle.create_parameter([1, interests, steps], "float32", attr=self.attr("routing", trainable=False))
        logits = paddle.tile(routing, [paddle.shape(low)[0], 1, 1])
        far = paddle.ones_like(mask, dtype="float32") * FAR
        for _ in range(2):
            weights = F.softmax(paddle.where(mask, logits, far), axis=-1)
            change = paddle.matmul(self.squash(paddle.matmul(weights, fixed)), fixed, transpose_y=True)
            norm = paddle.norm(change, p=2, axis=-1, keepdim=True)
            logits = logits + change / paddle.maximum(norm, paddle.ones_like(change))
        weights = F.softmax(paddle.where(mask, logits, far), axis=-1)
        high = self.squash(paddle.matmul(weights, low))
        share = F.softmax(paddle.sum(high * table(label), axis=-1, keepdim=True), axis=1)
        user = paddle.sum(high * share, axis=1)
        scores = paddle.matmul(user, table(paddle.arange(1, 25, dtype="int64")), transpose_y=True)
        loss = F.cross_entropy(scores, label - 1)
        paddle.optimizer.Adam(0.02).minimize(loss)
        return loss, lambda draw: {
            "items": draw.randint(0, 25, (ROWS, steps)),
            "length": draw.randint(1, steps, (ROWS, 1)),
            "label": draw.randint(1, 25, (ROWS, 1)),
        }

    def sessions(self):
        """A graph of each session's items, whose nodes are gathered by the number of the session."""
        paddle, F, nodes, steps, width = self.paddle, self.F, 4, 5, 6
        items, seen = self.data("items", [-1, nodes], "int64"), self.data("seen", [-1, steps, 1], "int64")
        near, label = self.data("near", [-1, nodes, nodes]), self.data("label", [-1, 1], "int64")
        state = self.nn.Embedding(20, width, weight_attr=self.attr("table"))(items)
        state = F.relu(self.linear("in", width, width)(paddle.matmul(near, state)))
        count = paddle.shape(items)[0]
        rows = paddle.arange(0, count, dtype="int64").reshape([-1, 1, 1]).expand([count, steps, 1])
        walk = paddle.gather_nd(state, paddle.concat([rows, seen], axis=2))
        place = self.nn.Embedding(steps, width, weight_attr=self.attr("place"))(paddle.arange(0, steps))
        walk = walk + paddle.tile(place.unsqueeze(0), [count, 1, 1])
        share = F.sigmoid(self.linear("share", width, 1)(walk))
        both = paddle.concat([paddle.sum(share * walk, axis=1), walk[:, -1, :]], axis=1)
        loss = F.cross_entropy(self.linear("out", 2 * width, 20)(both), label)
        rate = paddle.optimizer.lr.StepDecay(0.05, step_size=3, gamma=0.5)
        paddle.optimizer.Adam(rate, amsgrad=True, weight_decay=1e-3).minimize(loss)
        return loss, lambda draw: {
            "items": draw.randint(0, 20, (ROWS, nodes)),
            "seen": draw.randint(0, nodes, (ROWS, steps, 1)),
            "near": draw.rand(ROWS, nodes, nodes).astype("float32"),
            "label": draw.randint(0, 20, (ROWS, 1)),
        }

    def policy(self):
        """Actions of a Beta and of a normal distribution, by advantages over their mean, and entropies."""
        paddle, F, D = self.paddle, self.F, self.paddle.distribution
        state, gain = self.data("state", [-1, 4]), self.data("gain", [-1, 1])
        part, move = self.data("part", [-1, 1]), self.data("move", [-1, 2])
        hidden = F.tanh(self.linear("hidden", 4, 8)(state))
        shape = F.softplus(self.linear("beta", 8, 2)(hidden)) + 1.0
        share = D.Beta(shape[:, :1], shape[:, 1:])
        around = D.Independent(
            D.Normal(self.linear("mean", 8, 2)(hidden), F.softplus(self.linear("scale", 8, 2)(hidden)) + 0.1), 1
        )
        logs = share.log_prob(part) + around.log_prob(move).unsqueeze(-1)
        doubt = share.entropy() + around.entropy().unsqueeze(-1)
        prior = D.kl_divergence(share, D.Beta(paddle.ones_like(part) * 2, paddle.ones_like(part) * 2))
        loss = -paddle.mean(logs * gain) - 0.01 * paddle.mean(doubt) + 0.1 * paddle.mean(prior)
        paddle.optimizer.AdamW(0.02, amsgrad=True, weight_decay=0.1).minimize(loss)
        return loss, lambda draw: {
            "state": draw.randn(ROWS, 4).astype("float32"),
            "gain": draw.randn(ROWS, 1).astype("float32"),
            "part": draw.uniform(0.1, 0.9, (ROWS, 1)).astype("float32"),
            "move": draw.randn(ROWS, 2).astype("float32"),
        }

    def tagger(self):
        """Sentences in both directions, of lengths that may all be below the padded one."""
        paddle, F, nn = self.paddle, self.F, self.nn
        words, length = self.data("words", [-1, -1], "int64"), self.data("length", [-1], "int64")
        label = self.data("label", [-1, -1, 1], "int64")
        table = nn.Embedding(15, 4, weight_attr=self.attr("table"))
        start = nn.initializer.Constant(0.1)
        attrs = {k: start for k in ("weight_ih_attr", "weight_hh_attr", "bias_ih_attr", "bias_hh_attr")}
        rows, _ = nn.GRU(4, 3, direction="bidirect", **attrs)(table(words), sequence_length=length)
        scores = self.linear("out", 6, 5)(rows)
        mask = F.sequence_mask(length, paddle.shape(words)[1], "float32")
        losses = F.cross_entropy(scores, label, reduction="none").squeeze(-1) * mask
        loss = paddle.mean(losses.sum(axis=1))
        paddle.optimizer.SGD(0.5).minimize(loss)
        return loss, lambda draw: {
            "words": draw.randint(0, 15, (ROWS, 6)),
            "length": draw.randint(1, 5, (ROWS,)),
            "label": draw.randint(0, 5, (ROWS, 6, 1)),
        }


NAMES = ("capsules", "sessions", "policy", "tagger")


def run(paddle, name, compiled=lambda main, loss: main):
    """Return the losses of all steps."""
    static = paddle.static
    main, startup = static.Program(), static.Program()
    with static.program_guard(main, startup), paddle.utils.unique_name.guard():
        loss, feed = getattr(Nets(paddle), name)()
    exe, scope, draw = static.Executor(paddle.CPUPlace()), static.Scope(), np.random.RandomState(0)
    block = main.global_block()
    with static.scope_guard(scope):
        exe.run(startup)
        for parameter in block.all_parameters():
            if parameter.name in {"table", "routing", "place"} or parameter.name.endswith(("_w", "_b")):
                tensor = scope.find_var(parameter.name).get_tensor()
                tensor.set(initial(parameter.name, parameter.shape), paddle.CPUPlace())
        program = compiled(main, loss)
        return [float(np.mean(exe.run(program, feed(draw), [loss])[0])) for _ in range(STEPS)]


if __name__ == "__main__":
    import compact_json
    import paddle

    paddle.enable_static()
    record = {name: run(paddle, name) for name in NAMES}
    compact_json.write(str(Path(__file__).with_suffix(".json")), record, 1)
