"""What Paddle 1.8.5 and Rowlock make of sequences (LoD); read by Python 3.7, too.

Run with a Python 3.7 that has paddlepaddle==1.8.5 to make sequences.json:  python sequences.py [CASE ...]
{"kept": {name: [[lod_level, lod, shape] of each result]},
 "computed": {name: [[shape, elements, lod] of each result and gradient]},
 "trained": {name: losses}}
or {"error": [its class, its last line]} where Paddle fails.
"""

import os
import signal
import sys

import numpy as np


def lod_tensor(fluid, array, lengths):
    return fluid.create_lod_tensor(array, lengths, fluid.CPUPlace())


def rows(count, *shape, **more):
    """Numbers that are drawn from the count and the shape alone."""
    rng = np.random.RandomState(more.get("seed", 0) + count)
    return np.round(rng.uniform(-1, 1, (count,) + shape), 3).astype("float32")


def whole(count, high, seed=0):
    rng = np.random.RandomState(seed + count)
    return rng.randint(0, high, (count, 1)).astype("int64")


# -- which sequences results have: x has [[0, 2, 5]], z [[0, 1, 5]], y none, all 5 by 4 -----------------

KEPT = {}


def kept(**cases):
    KEPT.update(cases)


def same(names, **keywords):
    for name in names.split():
        KEPT[name] = lambda L, v, name=name: getattr(L, name)(v["x"], **keywords)


same(
    "relu tanh sigmoid exp sqrt abs square softsign leaky_relu elu swish hard_sigmoid relu6 scale softmax"
    " log cumsum zeros_like ones_like logsigmoid gelu stanh brelu soft_relu round sign floor"
)
same(
    "mean shape sin cos acos atan rsqrt reciprocal tanh_shrink hard_shrink softshrink thresholded_relu softplus"
    " sampling_id isfinite has_nan has_inf selu mish erf hard_swish reduce_max reduce_any_"
)
del KEPT["reduce_any_"]
kept(
    dropout=lambda L, v: L.dropout(v["x"], 0.5, is_test=True),
    cast=lambda L, v: L.cast(v["x"], "int64"),
    clip=lambda L, v: L.clip(v["x"], -1.0, 1.0),
    pow=lambda L, v: L.pow(v["x"], 2.0),
    prelu=lambda L, v: L.prelu(v["x"], "all"),
    assign=lambda L, v: L.assign(v["x"]),
    layer_norm=lambda L, v: L.layer_norm(v["x"]),
    batch_norm=lambda L, v: L.batch_norm(v["x"]),
    label_smooth=lambda L, v: L.label_smooth(v["x"]),
    argsort=lambda L, v: L.argsort(v["x"]),
    topk=lambda L, v: L.topk(v["x"], 2),
    one_hot=lambda L, v: L.one_hot(v["ids"], 7),
    cross_entropy=lambda L, v: L.cross_entropy(L.softmax(v["x"]), v["labels"]),
    softmax_with_cross_entropy=lambda L, v: L.softmax_with_cross_entropy(
        v["x"], v["labels"], return_softmax=True
    ),
    sigmoid_cross_entropy=lambda L, v: L.sigmoid_cross_entropy_with_logits(v["x"], v["y"]),
    huber_loss=lambda L, v: L.huber_loss(v["x"], v["y"], 1.0),
    smooth_l1=lambda L, v: L.smooth_l1(v["x"], v["y"]),
    pad=lambda L, v: L.pad(v["x"], [0, 0, 0, 1]),
    expand=lambda L, v: L.expand(v["x"], [1, 2]),
    split=lambda L, v: L.split(v["x"], 2, dim=1),
    add_x_z=lambda L, v: v["x"] + v["z"],
    add_z_x=lambda L, v: v["z"] + v["x"],
    add_y_x=lambda L, v: v["y"] + v["x"],
    times_2=lambda L, v: v["x"] * 2.0,
    less_than=lambda L, v: L.less_than(v["x"], v["y"]),
    equal_y_x=lambda L, v: L.equal(v["y"], v["x"]),
    logical_and=lambda L, v: L.logical_and(
        L.less_than(v["x"], v["y"]), L.less_than(v["y"], v["x"])
    ),
    square_error_cost=lambda L, v: L.square_error_cost(v["x"], v["y"]),
    sums_x_y=lambda L, v: L.sums([v["x"], v["y"]]),
    sums_y_x=lambda L, v: L.sums([v["y"], v["x"]]),
    concat_1=lambda L, v: L.concat([v["x"], v["z"]], axis=1),
    concat_1_y_x=lambda L, v: L.concat([v["y"], v["x"]], axis=1),
    concat_0=lambda L, v: L.concat([v["x"], v["z"]], axis=0),
    concat_0_x_y=lambda L, v: L.concat([v["x"], v["y"]], axis=0),
    concat_0_y_x=lambda L, v: L.concat([v["y"], v["x"]], axis=0),
    concat_0_outer=lambda L, v: L.concat([v["w"], v["w"]], axis=0),
    stack=lambda L, v: L.stack([v["x"], v["z"]], axis=1),
    fc=lambda L, v: L.fc(v["x"], 3),
    fc_y_x=lambda L, v: L.fc([v["y"], v["x"]], 3),
    fc_x_y=lambda L, v: L.fc([v["x"], v["y"]], 3, act="tanh"),
    mul=lambda L, v: L.mul(v["x"], L.fill_constant([4, 3], "float32", 0.5)),
    matmul=lambda L, v: L.matmul(v["x"], L.fill_constant([4, 3], "float32", 0.5)),
    embedding=lambda L, v: L.embedding(v["ids"], [7, 3]),
    reshape_all=lambda L, v: L.reshape(v["x"], [-1, 2]),
    reshape_split=lambda L, v: L.reshape(v["x"], [0, 2, 2]),
    unsqueeze_1=lambda L, v: L.unsqueeze(v["x"], [1]),
    unsqueeze_0=lambda L, v: L.unsqueeze(v["x"], [0]),
    squeeze=lambda L, v: L.squeeze(v["ids"], [1]),
    flatten=lambda L, v: L.flatten(v["x"]),
    slice_1=lambda L, v: L.slice(v["x"], [1], [0], [2]),
    slice_0=lambda L, v: L.slice(v["x"], [0], [0], [2]),
    reduce_sum_1=lambda L, v: L.reduce_sum(v["x"], 1),
    reduce_sum_0=lambda L, v: L.reduce_sum(v["x"], 0),
    reduce_sum=lambda L, v: L.reduce_sum(v["x"]),
    transpose=lambda L, v: L.transpose(v["x"], [1, 0]),
    transpose_kept=lambda L, v: L.transpose(L.unsqueeze(v["x"], [2]), [0, 2, 1]),
    strided_slice_1=lambda L, v: L.strided_slice(v["x"], [1], [0], [4], [2]),
    strided_slice_0=lambda L, v: L.strided_slice(v["x"], [0], [0], [5], [1]),
    slice_0_whole=lambda L, v: L.slice(v["x"], [0, 1], [0, 0], [5, 2]),
    gather_nd=lambda L, v: L.gather_nd(v["x"], v["ids"]),
    scatter=lambda L, v: L.scatter(v["x"], L.squeeze(v["ids"], [1]), v["y"]),
    scatter_nd_add=lambda L, v: L.scatter_nd_add(v["x"], v["ids"], v["y"]),
    where=lambda L, v: L.where(L.less_than(v["x"], v["y"])),
    multiplex=lambda L, v: L.multiplex([v["x"], v["z"]], L.cast(v["ids"] * 0, "int32")),
    unstack=lambda L, v: L.unstack(v["x"], axis=1, num=4),
    crop_tensor=lambda L, v: L.crop_tensor(v["x"], [5, 2]),
    expand_as=lambda L, v: L.expand_as(v["x"], v["y"]),
    elementwise_max=lambda L, v: L.elementwise_max(v["x"], v["y"]),
    elementwise_pow_y_x=lambda L, v: L.elementwise_pow(v["y"], v["x"]),
    minus_number=lambda L, v: 1.0 - v["x"],
    logical_not=lambda L, v: L.logical_not(L.less_than(v["x"], v["y"])),
    log_loss=lambda L, v: L.log_loss(L.reduce_sum(v["x"], 1, True), L.reduce_sum(v["y"], 1, True)),
    kldiv_loss=lambda L, v: L.kldiv_loss(v["x"], v["y"], reduction="none"),
    rank_loss=lambda L, v: L.rank_loss(
        *[L.reduce_sum(v[name], 1, True) for name in ("x", "y", "z")]
    ),
    margin_rank_loss=lambda L, v: L.margin_rank_loss(
        *[L.reduce_sum(v[name], 1, True) for name in ("x", "y", "z")]
    ),
    bpr_loss=lambda L, v: L.bpr_loss(L.softmax(v["x"]), v["labels"]),
    mse_loss=lambda L, v: L.mse_loss(v["x"], v["y"]),
    dice_loss=lambda L, v: L.dice_loss(L.softmax(v["x"]), v["labels"]),
    bilinear=lambda L, v: L.bilinear_tensor_product(v["x"], v["y"], 3),
    data_norm=lambda L, v: L.data_norm(v["x"]),
    roll=lambda L, v: L.roll(v["x"], 1, 1),
    flip=lambda L, v: L.flip(v["x"], [1]),
    index_select=lambda L, v: L.index_select(v["x"], L.squeeze(v["ids"], [1])),
    pad_constant_like=lambda L, v: L.pad_constant_like(v["x"], v["y"]),
    cumsum_reverse=lambda L, v: L.cumsum(v["x"], 0, reverse=True),
    pool_of_fc=lambda L, v: L.sequence_pool(L.fc(v["x"], 3), "max"),
    first_step=lambda L, v: L.sequence_first_step(v["x"]),
    first_step_2=lambda L, v: L.sequence_last_step(v["w"]),
    sequence_mask=lambda L, v: L.sequence_mask(v["ids"], 4),
    sequence_scatter=lambda L, v: L.sequence_scatter(
        v["y"], v["ids"], L.reduce_sum(v["x"], 1, True)
    ),
    row_gradients=lambda L, v: v["gradients"](L.relu(v["x"]), v["x"]),
    pool_gradients=lambda L, v: v["gradients"](L.sequence_pool(v["x"], "sum"), v["x"]),
    conv_gradients=lambda L, v: v["gradients"](L.sequence_conv(v["x"], 3), v["x"]),
    row_conv_gradients=lambda L, v: v["gradients"](L.row_conv(v["x"], 2), v["x"]),
    gather=lambda L, v: L.gather(v["x"], v["ids"]),
    argmax=lambda L, v: L.argmax(v["x"], 1),
    reverse=lambda L, v: L.reverse(v["x"], 1),
    l2_normalize=lambda L, v: L.l2_normalize(v["x"], 1),
    cos_sim=lambda L, v: L.cos_sim(v["x"], v["y"]),
    fill_like=lambda L, v: L.fill_constant_batch_size_like(v["x"], [-1, 3], "float32", 1.0),
    uniform_like=lambda L, v: L.uniform_random_batch_size_like(v["x"], [-1, 3]),
    gaussian_like=lambda L, v: L.gaussian_random_batch_size_like(v["x"], [-1, 3]),
    sequence_pool=lambda L, v: L.sequence_pool(v["x"], "sum"),
    sequence_pool_2=lambda L, v: L.sequence_pool(v["w"], "sum"),
    relu_2=lambda L, v: L.relu(v["w"]),
    sequence_softmax=lambda L, v: L.sequence_softmax(L.fc(v["x"], 1)),
    sequence_conv=lambda L, v: L.sequence_conv(v["x"], 3),
    row_conv=lambda L, v: L.row_conv(v["x"], 2),
    sequence_reverse=lambda L, v: L.sequence_reverse(v["x"]),
    sequence_concat=lambda L, v: L.sequence_concat([v["x"], v["z"]]),
    sequence_reshape=lambda L, v: L.sequence_reshape(v["x"], 2),
    sequence_expand_as=lambda L, v: L.sequence_expand_as(L.sequence_pool(v["x"], "sum"), v["z"]),
    sequence_pad=lambda L, v: L.sequence_pad(v["x"], L.fill_constant([1], "float32", 0.0)),
    sequence_unpad=lambda L, v: L.sequence_unpad(
        *L.sequence_pad(v["x"], L.fill_constant([1], "float32", 0.0))
    ),
    sequence_enumerate=lambda L, v: L.sequence_enumerate(v["ids"], 2),
    sequence_slice=lambda L, v: L.sequence_slice(v["x"], v["first"], v["length"]),
    lod_reset_list=lambda L, v: L.lod_reset(v["x"], target_lod=[0, 4, 5]),
    lod_reset_y=lambda L, v: L.lod_reset(v["x"], v["w5"]),
    lod_append=lambda L, v: L.lod_append(v["x"], [0, 1, 2, 3, 4, 5]),
    im2sequence=lambda L, v: L.im2sequence(v["image"], 2),
    edit_distance=lambda L, v: L.edit_distance(v["ids"], v["ids"]),
    accuracy=lambda L, v: L.accuracy(L.softmax(v["x"]), v["labels"]),
)


def kept_feeds(fluid):
    one, other, two = [[2, 3]], [[1, 4]], [[2, 1], [2, 3, 1]]
    return {
        "x": lod_tensor(fluid, rows(5, 4), one),
        "z": lod_tensor(fluid, rows(5, 4, seed=1), other),
        "y": rows(5, 4, seed=2),
        "w": lod_tensor(fluid, rows(6, 4, seed=3), two),
        "w5": lod_tensor(fluid, rows(5, 4, seed=4), [[1, 1], [2, 3]]),
        "ids": lod_tensor(fluid, whole(5, 4), one),
        "labels": lod_tensor(fluid, whole(5, 4, 1), one),
        "first": np.array([[1], [0]], "int64"),
        "length": np.array([[1], [2]], "int64"),
        "image": rows(2, 3, 3, 3),
    }


def kept_data(fluid):
    L = fluid.layers

    def gradients(out, x):
        return fluid.gradients([L.mean(out)], [x])

    return {
        "gradients": gradients,
        "x": L.data("x", [4], lod_level=1, stop_gradient=False),
        "z": L.data("z", [4], lod_level=1),
        "y": L.data("y", [4]),
        "w": L.data("w", [4], lod_level=2),
        "w5": L.data("w5", [4], lod_level=2),
        "ids": L.data("ids", [1], dtype="int64", lod_level=1),
        "labels": L.data("labels", [1], dtype="int64", lod_level=1),
        "first": L.data("first", [1], dtype="int64"),
        "length": L.data("length", [1], dtype="int64"),
        "image": L.data("image", [3, 3, 3]),
    }


def run_kept(fluid, name):
    main, startup = fluid.Program(), fluid.Program()
    with fluid.program_guard(main, startup), fluid.unique_name.guard():
        data = kept_data(fluid)
        outs = KEPT[name](fluid.layers, data)
    outs = list(outs) if isinstance(outs, (list, tuple)) else [outs]
    exe = fluid.Executor(fluid.CPUPlace())
    with fluid.scope_guard(fluid.Scope()):
        exe.run(startup)
        results = exe.run(main, feed=kept_feeds(fluid), fetch_list=outs, return_numpy=False)
        return [
            [variable.lod_level, result.lod(), list(np.array(result).shape)]
            for variable, result in zip(outs, results)
        ]


# -- what sequence ops compute ---------------------------------------------------------------------------

COMPUTED = {}


def computed(**cases):
    COMPUTED.update(cases)


def constant(fluid, shape, seed=0):
    """A parameter of fixed numbers."""
    numbers = rows(int(np.prod(shape)), seed=seed).reshape(shape)
    return fluid.ParamAttr(initializer=fluid.initializer.NumpyArrayInitializer(numbers))


def sequences(fluid, name, count, shape, lengths, seed=0):
    x = fluid.layers.data(name, shape, lod_level=len(lengths))
    x.stop_gradient = False
    return x, {name: lod_tensor(fluid, rows(count, *shape, seed=seed), lengths)}


def labels(fluid, name, lengths, high, seed=0):
    x = fluid.layers.data(name, [1], dtype="int64", lod_level=len(lengths))
    return x, {name: lod_tensor(fluid, whole(sum(lengths[-1]), high, seed), lengths)}


def plain(fluid, name, array):
    x = fluid.layers.data(name, list(array.shape[1:]), dtype=str(array.dtype))
    x.stop_gradient = array.dtype.kind != "f"
    return x, {name: array}


def conv(size, start, lengths):
    def build(fluid):
        x, feed = sequences(fluid, "x", sum(lengths), [3], [lengths])
        weight, bias = constant(fluid, [3 * size, 4]), constant(fluid, [4], 1)
        out = fluid.layers.sequence_conv(
            x, 4, size, padding_start=start, param_attr=weight, bias_attr=bias, act="tanh"
        )
        return [out], [x], feed

    return build


for size, start in ((3, None), (3, 0), (3, -2), (2, None), (1, 0), (4, 1), (2, -3)):
    COMPUTED["conv_%d_%s" % (size, start)] = conv(size, start, [2, 1, 4])
COMPUTED["conv_empty"] = conv(3, None, [2, 0, 3])


def trained_padding(start, size, lengths):
    def build(fluid):
        x, feed = sequences(fluid, "x", sum(lengths), [2], [lengths])
        up, down = max(0, -start), max(0, start + size - 1)
        block = fluid.default_main_program().global_block()
        helper = fluid.layer_helper.LayerHelper("conv")
        padding = helper.create_parameter(constant(fluid, [up + down, 2], 2), [up + down, 2], "float32")
        weight = helper.create_parameter(constant(fluid, [size * 2, 3], 3), [size * 2, 3], "float32")
        out = block.create_var(name="conv_out", dtype="float32")
        block.append_op(
            type="sequence_conv",
            inputs={"X": [x], "Filter": [weight], "PaddingData": [padding]},
            outputs={"Out": [out]},
            attrs={
                "contextLength": size,
                "contextStart": start,
                "contextStride": 1,
                "paddingTrainable": True,
            },
        )
        return [out], [x, padding, weight], feed

    return build


COMPUTED["padding_data"] = trained_padding(-1, 3, [2, 3])
COMPUTED["padding_data_back"] = trained_padding(-2, 2, [3, 4])
COMPUTED["padding_data_ahead"] = trained_padding(1, 2, [3, 2])
COMPUTED["padding_data_short"] = trained_padding(-2, 5, [1, 2, 4])


def row_conv(fluid):
    x, feed = sequences(fluid, "x", 7, [3], [[2, 1, 4]])
    return [fluid.layers.row_conv(x, 2, constant(fluid, [3, 3]), "tanh")], [x], feed


def row_conv_padded(fluid):
    x, feed = plain(fluid, "x", rows(2, 4, 3))
    return [fluid.layers.row_conv(x, 2, constant(fluid, [3, 3]))], [x], feed


def cut(fluid):
    x, feed = sequences(fluid, "x", 9, [2], [[2, 3, 4]])
    first, one = plain(fluid, "first", np.array([[1], [0], [1]], "int64"))
    length, two = plain(fluid, "length", np.array([[1], [0], [2]], "int64"))
    out = fluid.layers.sequence_slice(x, first, length)
    feed.update(one), feed.update(two)
    return [out], [x], feed


def together(fluid):
    x, feed = sequences(fluid, "x", 6, [2], [[2, 0, 4]])
    y, more = sequences(fluid, "y", 5, [2], [[1, 3, 1]], 1)
    feed.update(more)
    return [fluid.layers.sequence_concat([x, y, x])], [x, y], feed


def reshaped(width):
    def build(fluid):
        x, feed = sequences(fluid, "x", 8, [6], [[2, 0, 6]])
        return [fluid.layers.sequence_reshape(x, width)], [x], feed

    return build


def scattered(fluid):
    x, feed = plain(fluid, "x", rows(4, 5))
    ids, one = labels(fluid, "ids", [[3, 0, 4]], 5)
    updates, two = sequences(fluid, "updates", 7, [1], [[3, 0, 4]], 1)
    feed.update(one), feed.update(two)
    return [fluid.layers.sequence_scatter(x, ids, updates)], [x, updates], feed


def listed(size, pad):
    def build(fluid):
        x, feed = labels(fluid, "x", [[3, 0, 4]], 9)
        return [fluid.layers.sequence_enumerate(x, size, pad)], [], feed

    return build


def erased(tokens, lengths):
    def build(fluid):
        x, feed = labels(fluid, "x", lengths, 4)
        block = fluid.default_main_program().global_block()
        out = block.create_var(name="erased", dtype="int64")
        block.append_op(
            type="sequence_erase", inputs={"X": [x]}, outputs={"Out": [out]}, attrs={"tokens": tokens}
        )
        return [out], [], feed

    return build


def patches(**settings):
    def build(fluid):
        x, feed = plain(fluid, "x", rows(2, 3, 5, 4))
        return [fluid.layers.im2sequence(x, **settings)], [x], feed

    return build


def positions(fluid):
    x, feed = sequences(fluid, "x", 7, [6], [[2, 1, 4]])
    return [fluid.layers.add_position_encoding(x, 0.5, 2.0)], [x], feed


def pooled_rows(padding):
    def build(fluid):
        ids = fluid.layers.data("ids", [1], dtype="int64", lod_level=1)
        feed = {"ids": lod_tensor(fluid, whole(7, 7), [[3, 4]])}
        out = fluid.contrib.layers.fused_embedding_seq_pool(
            ids, [7, 3], padding_idx=padding, param_attr=constant(fluid, [7, 3])
        )
        weight = fluid.default_main_program().all_parameters()[0]
        return [out], [weight], feed

    return build


def largest(topks, channels):
    def build(fluid):
        heights, widths = [2, 3], [3, 4]
        sizes = [channels * h * w for h, w in zip(heights, widths)]
        x, feed = sequences(fluid, "x", sum(sizes), [1], [sizes])
        row, one = sequences(fluid, "row", 5, [2], [heights])
        column, two = sequences(fluid, "column", 7, [2], [widths])
        feed.update(one), feed.update(two)
        pool = fluid.contrib.layers.sequence_topk_avg_pooling
        return [pool(x, row, column, topks, channels)], [x], feed

    return build


def convolved_images(heights, widths, channels, kernel, stride):
    def build(fluid):
        sizes = [channels * h * w for h, w in zip(heights, widths)]
        x, feed = sequences(fluid, "x", sum(sizes), [1], [sizes])
        row, one = sequences(fluid, "row", sum(heights), [2], [heights])
        column, two = sequences(fluid, "column", sum(widths), [2], [widths])
        feed.update(one), feed.update(two)
        weight = constant(fluid, [2, channels * kernel[0] * kernel[1]])
        conv = fluid.contrib.layers.var_conv_2d
        out = conv(x, row, column, channels, 2, list(kernel), list(stride), weight, "tanh")
        return [out], [x, fluid.default_main_program().all_parameters()[0]], feed

    return build


def matched(fluid):
    x, feed = sequences(fluid, "x", 5, [3], [[2, 3]])
    y, more = sequences(fluid, "y", 6, [3], [[4, 2]], 1)
    feed.update(more)
    match = fluid.contrib.layers.match_matrix_tensor
    out, _ = match(x, y, 2, "tanh", constant(fluid, [3, 2, 3]))
    return [out], [x, y], feed


def matched_and_pooled(fluid):
    x, feed = sequences(fluid, "x", 5, [3], [[2, 3]])
    y, more = sequences(fluid, "y", 6, [3], [[4, 2]], 1)
    feed.update(more)
    contrib = fluid.contrib.layers
    out, _ = contrib.match_matrix_tensor(x, y, 2, None, constant(fluid, [3, 2, 3]))
    return [contrib.sequence_topk_avg_pooling(out, x, y, [1, 2], 2)], [x, y], feed


def of_sequences(layer, lengths=(2, 0, 4), shape=(2,)):
    """A layer of one operand."""

    def build(fluid):
        x, feed = sequences(fluid, "x", sum(lengths), list(shape), [list(lengths)])
        out = layer(fluid.layers, x)
        return list(out) if isinstance(out, (list, tuple)) else [out], [x], feed

    return build


def of_pairs(layer, x_lengths, y_lengths, count=None):
    """A layer of an operand that has sequences or rows, and of another that tells how often."""

    def build(fluid):
        if count is None:
            x, feed = sequences(fluid, "x", sum(x_lengths[-1]), [2], x_lengths)
        else:
            x, feed = plain(fluid, "x", rows(count, 2))
        y, more = sequences(fluid, "y", sum(y_lengths[-1]), [1], y_lengths, 1)
        feed.update(more)
        return [layer(fluid.layers, x, y)], [x], feed

    return build


for kind in ("sum", "average", "sqrt", "max", "first", "last"):
    COMPUTED["pool_" + kind] = of_sequences(
        lambda L, x, kind=kind: L.sequence_pool(x, kind, pad_value=0.5)
    )


def padded(L, x):
    return L.sequence_pad(x, L.fill_constant([1], "float32", -2.0), 5)


computed(
    softmax=of_sequences(lambda L, x: L.sequence_softmax(x), (2, 1, 4), (1,)),
    reverse=of_sequences(lambda L, x: L.sequence_reverse(x)),
    pad=of_sequences(padded),
    pad_longest=of_sequences(
        lambda L, x: L.sequence_pad(x, L.fill_constant([2], "float32", 0.0)), (3, 1)
    ),
    unpad=of_sequences(lambda L, x: L.sequence_reverse(L.sequence_unpad(*padded(L, x)))),
    mask=of_sequences(lambda L, x: L.sequence_mask(padded(L, x)[1], 6, "float32")),
    reset=of_sequences(lambda L, x: L.sequence_pool(L.lod_reset(x, target_lod=[0, 1, 6]), "sum")),
    expand=of_pairs(lambda L, x, y: L.sequence_expand(x, y), [[2, 1, 3]], [[2, 0, 1]]),
    expand_rows=of_pairs(lambda L, x, y: L.sequence_expand(x, y), None, [[2, 0, 3]], 3),
    expand_outer=of_pairs(
        lambda L, x, y: L.sequence_expand(x, y, 0), [[2, 2]], [[2, 1], [3, 3, 1]]
    ),
    expand_as=of_pairs(lambda L, x, y: L.sequence_expand_as(x, y), None, [[2, 0, 3]], 3),
)


def distances(normalized, ignored=None):
    def build(fluid):
        hyps, feed = labels(fluid, "hyps", [[3, 0, 5, 4]], 4)
        refs, more = labels(fluid, "refs", [[4, 2, 1, 4]], 4, 5)
        feed.update(more)
        out = fluid.layers.edit_distance(hyps, refs, normalized, ignored)
        return list(out), [], feed

    return build


def padded_distances(fluid):
    hyps, feed = plain(fluid, "hyps", np.random.RandomState(0).randint(0, 3, (3, 4)).astype("int64"))
    refs, one = plain(fluid, "refs", np.random.RandomState(1).randint(0, 3, (3, 5)).astype("int64"))
    long, two = plain(fluid, "long", np.array([[4], [0], [2]], "int64"))
    wide, three = plain(fluid, "wide", np.array([[3], [2], [5]], "int64"))
    for more in (one, two, three):
        feed.update(more)
    out = fluid.layers.edit_distance(hyps, refs, True, None, long, wide)
    return list(out), [], feed


def decoded(fluid):
    x, feed = plain(fluid, "x", rows(3, 6, 4))
    length, more = plain(fluid, "length", np.array([[6], [0], [4]], "int64"))
    feed.update(more)
    return list(fluid.layers.ctc_greedy_decoder(x, 0, length, 9)), [], feed


def decoded_rows(bias, count=11, lengths=(5, 0, 6)):
    """Of logits that the program computes; a large bias makes every label blank."""

    def build(fluid):
        x, feed = sequences(fluid, "x", count, [3], [list(lengths)])
        numbers = fluid.ParamAttr(
            initializer=fluid.initializer.NumpyArrayInitializer(np.array([bias, 0, 0], "float32"))
        )
        logits = fluid.layers.fc(x, 3, param_attr=constant(fluid, [3, 3]), bias_attr=numbers)
        return [fluid.layers.ctc_greedy_decoder(logits, 0)], [], feed

    return build


def compared_labels(fluid):
    """Distances of decoded labels, some ignored."""
    x, feed = sequences(fluid, "x", 11, [3], [[5, 2, 4]])
    refs, more = labels(fluid, "refs", [[4, 2, 1]], 3, 5)
    feed.update(more)
    logits = fluid.layers.fc(x, 3, param_attr=constant(fluid, [3, 3]), bias_attr=False)
    paths = fluid.layers.ctc_greedy_decoder(logits, 0)
    return list(fluid.layers.edit_distance(paths, refs, False, [1])), [], feed


def cut_at_the_largest(fluid):
    """The offset of a slice follows from what is computed; the slice is pooled."""
    x, feed = sequences(fluid, "x", 9, [2], [[2, 3, 4]])
    first = fluid.layers.cast(
        fluid.layers.sequence_pool(fluid.layers.relu(fluid.layers.fc(x, 1)), "max") > 9.0, "int64"
    )
    length, more = plain(fluid, "length", np.array([[1], [0], [2]], "int64"))
    feed.update(more)
    out = fluid.layers.sequence_slice(x, first, length)
    return [out, fluid.layers.relu(out)], [x], feed


def aligned(blank, merged, lengths=(5, 0, 6)):
    def build(fluid):
        x, feed = labels(fluid, "x", [list(lengths)], 3)
        block = fluid.default_main_program().global_block()
        out = block.create_var(name="aligned", dtype="int64")
        block.append_op(
            type="ctc_align",
            inputs={"Input": [x]},
            outputs={"Output": [out]},
            attrs={"blank": blank, "merge_repeated": merged},
        )
        return [out], [], feed

    return build


def measured(scheme, kinds, excluded=None, padded=False, seed=0):
    def build(fluid):
        high = kinds * {"plain": 1, "IOB": 2, "IOE": 2, "IOBES": 4}[scheme] + 1
        if padded:
            draw = np.random.RandomState(seed)
            said, feed = plain(fluid, "said", draw.randint(0, high, (3, 9)).astype("int64"))
            meant, one = plain(fluid, "meant", draw.randint(0, high, (3, 9)).astype("int64"))
            length, two = plain(fluid, "length", np.array([[9], [4], [0]], "int64"))
            feed.update(two)
        else:
            said, feed = labels(fluid, "said", [[14, 0, 12]], high, seed)
            meant, one = labels(fluid, "meant", [[14, 0, 12]], high, seed + 1)
            length = None
        feed.update(one)
        # Chunks that agree are rare among drawn labels.
        meant = said if seed == 9 else meant
        return list(fluid.layers.chunk_eval(said, meant, scheme, kinds, excluded, length)), [], feed

    return build


computed(
    row_conv=row_conv,
    row_conv_padded=row_conv_padded,
    slice=cut,
    concat=together,
    reshape_3=reshaped(3),
    reshape_12=reshaped(12),
    reshape_2=reshaped(2),
    scatter=scattered,
    enumerate_2=listed(2, 0),
    enumerate_4=listed(4, 7),
    erase=erased([1, 3], [[3, 0, 4]]),
    erase_2=erased([0], [[2, 1], [3, 0, 4]]),
    patches=patches(filter_size=2),
    patches_wide=patches(filter_size=[3, 2], stride=[2, 1], padding=[1, 0, 0, 1]),
    patches_padded=patches(filter_size=2, stride=2, padding=[1, 2]),
    positions=positions,
    embedding_pool=pooled_rows(None),
    embedding_pool_padding=pooled_rows(2),
    embedding_pool_end=pooled_rows(-1),
    largest=largest([1, 3], 2),
    largest_of_few=largest([2, 5], 1),
    images=convolved_images([4, 1], [3, 5], 2, (3, 3), (1, 1)),
    images_some_empty=convolved_images([3, 0, 2], [2, 3, 4], 1, (2, 5), (2, 1)),
    images_wide_steps=convolved_images([6, 5, 1], [5, 4, 1], 3, (1, 2), (3, 2)),
    matched=matched,
    matched_and_pooled=matched_and_pooled,
    distances=distances(False),
    distances_normalized=distances(True),
    distances_ignored=distances(False, [0, 2]),
    distances_padded=padded_distances,
    decoded=decoded,
    decoded_rows=decoded_rows(0),
    decoded_nothing=decoded_rows(99),
    compared_labels=compared_labels,
    cut_at_the_largest=cut_at_the_largest,
    aligned=aligned(0, True),
    aligned_2=aligned(2, False),
    chunks_plain=measured("plain", 2),
    chunks_IOB=measured("IOB", 2),
    chunks_IOB_1=measured("IOB", 1, seed=2),
    chunks_IOE=measured("IOE", 1, seed=3),
    chunks_IOBES=measured("IOBES", 1, seed=4),
    chunks_IOBES_2=measured("IOBES", 2, seed=9),
    chunks_excluded=measured("IOB", 2, [1], seed=5),
    chunks_padded=measured("IOE", 1, None, True, 6),
)


def run_computed(fluid, name):
    """Run a case; the gradients are those of the sum of (first result + 0.5) squared."""
    L = fluid.layers
    main, startup = fluid.Program(), fluid.Program()
    with fluid.program_guard(main, startup), fluid.unique_name.guard():
        results, sources, feed = COMPUTED[name](fluid)
        grads = []
        if sources:
            total = L.reduce_sum(L.square(results[0] + 0.5))
            grads = [g for g in fluid.gradients([total], sources) if g is not None]
    exe = fluid.Executor(fluid.CPUPlace())
    with fluid.scope_guard(fluid.Scope()):
        exe.run(startup)
        values = exe.run(main, feed=feed, fetch_list=results + grads, return_numpy=False)
    return [
        [list(np.array(value).shape), np.array(value).round(6).tolist(), value.lod() if k < len(results) else []]
        for k, value in enumerate(values)
    ]


# -- programs that train on sequences --------------------------------------------------------------------

VOCABULARY, STEPS, BATCH = 40, 20, 8


def documents(levels):
    """Batches of (words, label): lists of words, or of sentences; the label follows from the words."""
    rng = np.random.RandomState(7)
    for _ in range(STEPS):
        batch = []
        for _ in range(BATCH):
            label = rng.randint(2)
            shares = [2 * rng.randint(1, 9) % VOCABULARY + label for _ in range(6)]
            if levels == 1:
                words = [int(word) for word in shares[: rng.randint(1, 7)]]
            else:
                words = [[int(word) for word in shares[: rng.randint(1, 7)]] for _ in range(rng.randint(1, 4))]
            batch.append((words, int(label)))
        yield batch


def text_net(fluid, levels):
    """Convolutions over words, pooled, then over sentences where there are some; returns (feeds, loss)."""
    L = fluid.layers
    words = L.data("words", [1], dtype="int64", lod_level=levels)
    label = L.data("label", [1], dtype="int64")
    hidden = L.embedding(words, [VOCABULARY, 6], param_attr=constant(fluid, [VOCABULARY, 6]))
    pooled = []
    for k, size in enumerate((3, 4)):
        weight, bias = constant(fluid, [6 * size, 5], k), constant(fluid, [5], k)
        if levels == 1:
            conv = fluid.nets.sequence_conv_pool(hidden, 5, size, weight, "tanh", "sqrt", bias)
        else:
            rows = L.sequence_pool(L.fc(hidden, 6, param_attr=constant(fluid, [6, 6], k)), "max")
            conv = fluid.nets.sequence_conv_pool(rows, 5, size, weight, "tanh", "sum", bias)
        pooled.append(conv)
    guess = L.fc(
        pooled, 2, act="softmax",
        param_attr=[constant(fluid, [5, 2], k) for k in range(2)], bias_attr=constant(fluid, [2], 5),
    )  # fmt: skip
    loss = L.mean(L.cross_entropy(guess, label))
    fluid.optimizer.Adam(0.02).minimize(loss)
    return [words, label], loss


def run_trained(fluid, levels, reader, places):
    """Return the loss of each step; ``reader``: a DataFeeder or a loader gives the batches."""
    main, startup = fluid.Program(), fluid.Program()
    losses = []
    with fluid.program_guard(main, startup), fluid.unique_name.guard():
        feeds, loss = text_net(fluid, levels)
        exe = fluid.Executor(fluid.CPUPlace())
        with fluid.scope_guard(fluid.Scope()):
            exe.run(startup)
            program = main
            if places > 1:
                program = fluid.CompiledProgram(main).with_data_parallel(
                    loss_name=loss.name, places=fluid.cpu_places(places)
                )
            if reader == "feeder":
                feeder = fluid.DataFeeder(feeds, fluid.CPUPlace(), main)
                batches = (feeder.feed(batch) for batch in documents(levels))
            else:
                loader = fluid.io.DataLoader.from_generator(feeds, capacity=4)
                loader.set_sample_list_generator(lambda: documents(levels), fluid.CPUPlace())
                batches = loader()
            for feed in batches:
                (value,) = exe.run(program, feed=feed, fetch_list=[loss])
                losses.append(float(np.mean(value)))
    return losses


TRAINED = {
    "words": (1, "feeder", 1),
    "words of a loader": (1, "loader", 1),
    "sentences": (2, "feeder", 1),
    "words on two places": (1, "feeder", 2),
    "sentences on two places": (2, "feeder", 2),
}


def apart(work):
    """Run work in a process of its own: some cases crash Paddle."""
    import json

    receiving, sending = os.pipe()
    child = os.fork()
    if not child:
        os.close(receiving)
        null = os.open(os.devnull, os.O_WRONLY)
        os.dup2(null, 2)
        signal.alarm(60)
        try:
            result = work()
        except Exception as error:
            text = str(error).strip().splitlines()
            result = {"error": [type(error).__name__, text[-1][:200] if text else ""]}
        with os.fdopen(sending, "w") as stream:
            json.dump(result, stream)
        os._exit(0)
    os.close(sending)
    with os.fdopen(receiving) as stream:
        text = stream.read()
    os.waitpid(child, 0)
    return json.loads(text) if text else {"error": ["crashed", ""]}


if __name__ == "__main__":
    import json

    import compact_json
    from paddle import fluid

    path = os.path.join(os.path.dirname(os.path.abspath(sys.argv[0])), "sequences.json")
    os.environ["CPU_NUM"] = "2"
    record = json.load(open(path)) if os.path.exists(path) else {}
    for part, table, work in (
        ("kept", KEPT, run_kept),
        ("computed", COMPUTED, run_computed),
        ("trained", TRAINED, lambda fluid, name: run_trained(fluid, *TRAINED[name])),
    ):
        record.setdefault(part, {})
        for name in table:
            if not sys.argv[1:] or name in sys.argv[1:]:
                record[part][name] = apart(lambda: work(fluid, name))
                if "error" in record[part][name]:
                    print(part, name, record[part][name])
        record[part] = {name: record[part][name] for name in sorted(table)}
    compact_json.write(path, record, 2)
