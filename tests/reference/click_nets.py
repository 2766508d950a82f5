"""Nets of retrieval and of clicks, as their authors wrote them for Paddle 1.x, and the losses of Paddle 1.8.5.

``python tests/reference/click_nets.py`` writes ``click_nets.json`` where Paddle 1.8.5 is installed. What Paddle
refuses on CPUs (``rank_attention``) is written there as the products that it stands for.
"""

import json
import zlib
from pathlib import Path

import numpy as np

STEPS = 20
TRAVEL = [[1, 3, 7], [1, 3, 8], [1, 4, 9], [1, 4, 10], [2, 5, 11], [2, 5, 12], [2, 6, 13], [2, 6, 0]]
LAYERS = [2, 4, 7]  # the nodes of a tree below the root, by layer; the last item is a leaf higher up
RANKS, WIDTH = 3, 6


def initial(name, shape):
    """Return the value that a parameter begins with."""
    draw = np.random.RandomState(zlib.crc32(name.encode()) & 0xFFFF)
    return draw.uniform(-0.5, 0.5, shape).astype("float32")


class Nets:
    """Each method builds a net and returns its loss, and what else is fetched."""

    def __init__(self, fluid, ours):
        self.fluid, self.ours, self.layers = fluid, ours, fluid.layers

    def table(self, name, values):
        values = np.array(values)
        start = self.fluid.initializer.NumpyArrayInitializer(values)
        return self.fluid.ParamAttr(name=name, initializer=start)

    def tree_classifier(self, user, nodes, layer):
        """Score nodes of a layer for each user: [rows, nodes, 2]."""
        layers = self.layers
        user = layers.fc(user, WIDTH, act="tanh", param_attr="user_w%d" % layer, bias_attr="user_b%d" % layer)
        user = layers.unsqueeze(user, [1])
        user = layers.expand(user, [1, nodes.shape[1], 1])
        both = layers.concat([user, nodes], axis=2)
        hidden = layers.fc(
            both, WIDTH, num_flatten_dims=2, act="tanh", param_attr="both_w%d" % layer, bias_attr="both_b%d" % layer
        )
        return layers.fc(hidden, 2, num_flatten_dims=2, param_attr="class_w", bias_attr="class_b")

    def tree(self):
        """TDM: a user's item and, layer by layer of a tree, all other nodes, so that it draws but an order."""
        fluid, layers = self.fluid, self.layers
        user = fluid.data("user", [None, 4])
        item = fluid.data("item", [None, 1], "int64")
        others = [count - 1 for count in LAYERS]
        count = sum(LAYERS)
        nodes, labels, masks = fluid.contrib.layers.tdm_sampler(
            item, others, LAYERS, len(TRAVEL),
            tree_travel_attr=self.table("travel", np.array(TRAVEL, "int32")),
            tree_layer_attr=self.table("layer", np.arange(1, count + 1, dtype="int32").reshape(-1, 1)),
            output_positive=True, output_list=True, seed=0, tree_dtype="int32", dtype="int64",
        )  # fmt: skip
        scores = []
        for layer, ids in enumerate(nodes):
            rows = layers.embedding(
                layers.reshape(ids, [-1, 1]), [count + 1, WIDTH], is_sparse=True, param_attr="node_emb"
            )
            rows = layers.reshape(rows, [-1, others[layer] + 1, WIDTH])
            scores.append(self.tree_classifier(user, rows, layer))
        scores = layers.reshape(layers.concat(scores, axis=1), [-1, 2])
        labels, masks = (layers.reshape(layers.concat(x, axis=1), [-1, 1]) for x in (labels, masks))
        labels.stop_gradient = True
        cost, chances = layers.softmax_with_cross_entropy(scores, labels, return_softmax=True)
        real = layers.where(layers.cast(masks, "bool"))
        loss = layers.reduce_mean(layers.gather_nd(cost, real))
        accuracy = layers.accuracy(chances, labels)
        return loss, [accuracy]

    def tree_search(self):
        """TDM's beam: the best children of the best nodes, down from the first layer."""
        fluid, layers = self.fluid, self.layers
        user = fluid.data("user", [None, 4])
        info = [[0, 0, 0, 1, 2], [0, 1, 0, 3, 4], [0, 1, 0, 5, 6]]
        info += [[0, 2, 1 + k // 2, 7 + 2 * k, 8 + 2 * k if k < 3 else 0] for k in range(4)]
        info += [[k + 1, 3, 3 + k // 2, 0, 0] for k in range(7)]
        count, beam = len(info), 2
        nodes = layers.concat(
            [layers.fill_constant_batch_size_like(user, [-1, 1], "int64", k) for k in (1, 2)], axis=1
        )
        best_nodes = []
        for layer in range(3):
            rows = layers.embedding(layers.reshape(nodes, [-1, 1]), [count, WIDTH], param_attr="node_emb")
            width = nodes.shape[1]
            scores = self.tree_classifier(user, layers.reshape(rows, [-1, width, WIDTH]), layer)
            scores = layers.slice(layers.softmax(scores), axes=[2], starts=[1], ends=[2])
            scores = layers.reshape(scores, [-1, width])
            some = layers.cast(layers.cast(nodes, "bool"), "float32")
            scores = scores * some
            best, places = layers.topk(scores, min(beam, width))
            picked = layers.one_hot(layers.unsqueeze(places, [2]), width)
            top = layers.reduce_sum(picked * layers.unsqueeze(layers.cast(nodes, "float32"), [1]), dim=2)
            top = layers.cast(top, "int64")
            best_nodes += [best, top]
            if layer < 2:
                children, _ = fluid.contrib.layers.tdm_child(
                    layers.cast(top, "int32"), count, 2, param_attr=self.table("info", np.array(info, "int32")), dtype="int32"
                )
                nodes = layers.cast(layers.reshape(children, [-1, 2 * best.shape[1]]), "int64")
        return layers.reduce_mean(best_nodes[-2]), best_nodes

    def ranked(self):
        """A page's advertisements look at those beside them: by a matrix for each pair of ranks."""
        fluid, layers = self.fluid, self.layers
        x, ranks = fluid.data("x", [None, WIDTH]), fluid.data("ranks", [None, 1 + 2 * RANKS], "int32")
        label = fluid.data("click", [None, 1])
        x = layers.fc(x, WIDTH, act="relu", param_attr="x_w", bias_attr="x_b")
        shape = [RANKS * RANKS * WIDTH, 4]
        if self.ours:
            out = fluid.contrib.layers.rank_attention(x, ranks, shape, "matrices", RANKS)
        else:
            out = self.rank_products(x, ranks, layers.create_parameter(shape, "float32", "matrices"))
        h = layers.concat([x, layers.relu(out)], axis=1)
        score = layers.fc(h, 1, param_attr="s_w", bias_attr="s_b")
        loss = layers.reduce_mean(layers.sigmoid_cross_entropy_with_logits(score, label))
        return loss, []

    def rank_products(self, x, ranks, matrices):
        """Compute what ``rank_attention`` does, whose gradient does not reach ``x``."""
        layers = self.layers
        x = layers.assign(x)
        x.stop_gradient = True
        total = None
        own = layers.slice(ranks, [1], [0], [1])
        for k in range(RANKS):
            other, row = (layers.slice(ranks, [1], [2 * k + i], [2 * k + i + 1]) for i in (1, 2))
            real = layers.logical_and(own > 0, other > 0)
            real = layers.cast(real, "int32")
            pair = ((own - 1) * RANKS + other - 1) * real
            pairs = layers.reshape(matrices, [RANKS * RANKS, WIDTH, 4])
            chosen = layers.gather(pairs, layers.reshape(pair, [-1]), overwrite=False)
            rows = layers.gather(x, layers.reshape(row * real, [-1]))
            part = layers.squeeze(layers.matmul(layers.unsqueeze(rows, [1]), chosen), [1])
            part = part * layers.cast(real, "float32")
            total = part if total is None else total + part
        return total

    def hashed(self, word, filters, training=1, drop=0.0):
        """One tower of a matcher of texts: sums of the rows of all short runs of words."""
        fluid, layers = self.fluid, self.layers
        lists = {"white_list_len": 1, "black_list_len": 1}
        attrs = [self.table(name, np.zeros((1, 1), "float32")) for name in ("white", "black")]
        if filters:
            lists = {"white_list_len": len(filters[0]), "black_list_len": len(filters[1])}
            attrs = [self.table(name, each) for name, each in zip(("white", "black"), filters)]
        rows = fluid.contrib.layers.search_pyramid_hash(
            word, num_emb=16, space_len=300, pyramid_layer=4, rand_len=8, drop_out_percent=drop,
            is_training=training, use_filter=bool(filters), seed=1, lr=0.3,
            param_attr=fluid.ParamAttr("hash_w", learning_rate=0.0), param_attr_wl=attrs[0],
            param_attr_bl=attrs[1], distribute_update_vars=["hash_w"], name=None, **lists
        )  # fmt: skip
        pooled = layers.softsign(layers.sequence_pool(rows, "sum"))
        return rows, layers.fc(pooled, 8, param_attr="t_w", bias_attr="t_b", act="relu")

    def matcher(self, filters=None, training=1, drop=0.0):
        """Pyramid DNN: a query, a title that was clicked, and one that was not."""
        fluid, layers = self.fluid, self.layers
        words = [fluid.data(name, [None, 1], "int32", lod_level=1) for name in ("query", "right", "wrong")]
        for word in words:
            word.stop_gradient = False  # else Paddle does not train the table
        towers = [self.hashed(word, filters, training, drop) for word in words]
        query, right, wrong = (tower for _, tower in towers)
        right, wrong = (layers.cos_sim(query, title) for title in (right, wrong))
        margin = layers.fill_constant_batch_size_like(right, [-1, 1], "float32", 0.1)
        loss = layers.reduce_mean(layers.relu(margin - right + wrong))
        return loss, [towers[0][0]]

    def filtered(self):
        return self.matcher(filters())

    def measured(self):
        """The matcher, not in training."""
        return self.matcher(training=0, drop=0.5)

    def cases(self):
        return {
            "tree": self.tree,
            "tree_search": self.tree_search,
            "ranked": self.ranked,
            "matcher": self.matcher,
            "matcher_filtered": self.filtered,
            "matcher_measured": self.measured,
        }


# -- Bloom filters, as pyramid_hash reads them -------------------------------------------------------

MASK = 2**64 - 1


def turned(x, places):
    return (x << places | x >> (64 - places)) & MASK


def mixed(x):
    for factor in (0xFF51AFD7ED558CCD, 0xC4CEB9FE1A85EC53):
        x = (x ^ x >> 33) * factor & MASK
    return x ^ x >> 33


def murmur3(data, seed):
    """Return the halves of the 128-bit hash of bytes (Appleby, MurmurHash3, x64)."""
    c1, c2 = 0x87C37B91114253D5, 0x4CF5AD432745937F
    low = high = seed
    for at in range(0, len(data), 16):
        left, right = (int.from_bytes(data[at + k : at + k + 8], "little") for k in (0, 8))
        low ^= turned(left * c1 & MASK, 31) * c2 & MASK
        high_part = turned(right * c2 & MASK, 33) * c1 & MASK
        if at + 16 > len(data):
            high ^= high_part
            break
        low = ((turned(low, 27) + high) * 5 + 0x52DCE729) & MASK
        high ^= high_part
        high = ((turned(high, 31) + low) * 5 + 0x38495AB5) & MASK
    low, high = low ^ len(data), high ^ len(data)
    low = (low + high) & MASK
    high = (high + low) & MASK
    low, high = mixed(low), mixed(high)
    low = (low + high) & MASK
    return low, (high + low) & MASK


def bloom_filter(keys, bits, pairs):
    """Return a filter of byte strings as its bytes, viewed as float32: [numbers, 1]."""
    data = bytearray(bits // 8 + 8)
    for key in keys:
        for seed in range(pairs):
            for half in murmur3(key, seed):
                data[half % bits >> 3] |= 128 >> (half % bits & 7)
    data = np.array([17070416, bits, pairs, len(keys)], "<u8").tobytes() + bytes(data)
    return np.frombuffer(data + b"\0" * (-len(data) % 4), "float32").reshape(-1, 1)


def filters():
    """Return a white list of most runs of words below 9, and a black list of some of them."""
    runs = [tuple(range(k, k + n)) for n in (2, 3, 4) for k in range(9)]
    runs += [(a, b) for a in range(9) for b in range(9)]
    keys = [np.array(run, "float32").tobytes() for run in runs]
    return bloom_filter(keys, 4000, 3), bloom_filter(keys[::5], 700, 2)


# -- Feeds and steps --------------------------------------------------------------------------------


def sequences(fluid, draw, count):
    lengths = draw.randint(1, 7, count)
    words = draw.randint(0, 9, (lengths.sum(), 1)).astype("int32")
    return fluid.create_lod_tensor(words, [lengths.tolist()], fluid.CPUPlace())


def feeds(fluid, step, places=1):
    """Return what is fed in a step: eight rows, or sequences.

    On two places ranked rows are those of a place, and all items lie equally deep: their losses are means.
    """
    draw = np.random.RandomState(step)
    ranks = draw.randint(0, RANKS + 1, (8, 1 + 2 * RANKS))
    ranks[:, 2::2] = draw.randint(0, 4, (8, RANKS))
    ranks[4:, 2::2] += 4 if places == 1 else 0
    ranks[1, 3] = ranks[1, 1]  # the same pair twice
    fed = {
        "user": draw.uniform(-1, 1, (8, 4)).astype("float32"),
        "item": draw.randint(0, len(TRAVEL), (8, 1)) % (len(TRAVEL) if places == 1 else 7),
        "x": draw.uniform(-1, 1, (8, WIDTH)).astype("float32"),
        "ranks": ranks.astype("int32"),
        "click": draw.randint(0, 2, (8, 1)).astype("float32"),
    }
    words = {name: sequences(fluid, draw, 8) for name in ("query", "right", "wrong")}
    return dict(fed, **words)


def build(fluid, name, ours):
    """Return the programs, the loss and what else is fetched."""
    main, startup = fluid.Program(), fluid.Program()
    with fluid.program_guard(main, startup), fluid.unique_name.guard():
        loss, more = Nets(fluid, ours).cases()[name]()
        if "search" not in name and "measured" not in name:
            fluid.optimizer.Momentum(0.2, 0.9).minimize(loss)
    return main, startup, loss, more


def start(fluid, main, scope):
    """Set the parameters that no table was given for."""
    for parameter in main.all_parameters():
        if parameter.name not in ("travel", "layer", "info", "white", "black"):
            tensor = scope.find_var(parameter.name).get_tensor()
            tensor.set(initial(parameter.name, parameter.shape), fluid.CPUPlace())


def run(fluid, name, ours, compiled=lambda main, loss: main, places=1):
    """Return the losses of all steps, what the first one fetches beside, and parameters behind all steps."""
    main, startup, loss, more = build(fluid, name, ours)
    exe, scope = fluid.Executor(fluid.CPUPlace()), fluid.Scope()
    with fluid.scope_guard(scope):
        exe.run(startup)
        start(fluid, main, scope)
        program, losses, first = compiled(main, loss), [], None
        for step in range(STEPS):
            feed = {k: v for k, v in feeds(fluid, step, places).items() if k in main.global_block().vars}
            values = exe.run(program, feed=feed, fetch_list=[loss] + more, return_numpy=False)
            losses.append(float(np.mean(np.array(values[0]))))
            first = first or [[np.array(v).tolist(), v.lod()] for v in values[1:]]
        sums = {
            p.name: float(np.square(np.array(scope.find_var(p.name).get_tensor()), dtype="float64").sum())
            for p in main.all_parameters()
            if p.name not in ("white", "black")
        }
    return {"losses": losses, "first": first, "squares": sums}


if __name__ == "__main__":
    from paddle import fluid as paddle

    import compact_json

    record = {name: run(paddle, name, False) for name in Nets(paddle, False).cases()}
    compact_json.write(str(Path(__file__).with_suffix(".json")), record, 3)
