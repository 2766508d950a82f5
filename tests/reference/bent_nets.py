"""Programs with layers whose windows, trees and classes are data, and what they compute in Paddle: losses of some steps.

``python tests/reference/bent_nets.py`` writes ``bent_nets.json`` where Paddle 1.8.5 is installed.
"""

import json
import zlib
from pathlib import Path

import numpy as np

STEPS = 4


def feeds(step):
    """Return four images, trees and labels."""
    draw = np.random.RandomState(step)
    edges = [[[1, 2], [1, 3], [2, 4], [2, 5]], [[1, 2], [2, 3], [2, 4], [4, 5]]] * 2
    return {
        "images": draw.uniform(-1, 1, (4, 2, 6, 6)).astype("float32"),
        "words": draw.uniform(-1, 1, (4, 5, 3)).astype("float32"),
        "edges": np.array(edges, "int32"),
        "label": draw.randint(0, 5, (4, 1)),
        "table": np.array([[0, 1, -1], [0, 2, 1], [1, -1, -1], [2, 0, -1]]),
        "code": np.array([[0, 1, -1], [1, 1, 0], [1, -1, -1], [0, 0, -1]]),
    }


SHAPES = {name: ([None, *value.shape[1:]], value.dtype.name) for name, value in feeds(0).items()}


def initial(name, shape):
    """Return the value that a parameter begins with."""
    draw = np.random.RandomState(zlib.crc32(name.encode()) & 0xFFFF)
    return draw.uniform(-0.5, 0.5, shape).astype("float32")


def bent(fluid, modulated):
    """A deformable convolution whose offsets and mask are convolutions of the same images."""
    layers = fluid.layers
    x = fluid.data("images", *SHAPES["images"])
    x = layers.conv2d(x, 2, 1, param_attr="i_w", bias_attr=False)  # Paddle insists on its gradient
    offset = layers.conv2d(x, 2 * 2 * 9, 3, padding=1, stride=2, param_attr="o_w", bias_attr="o_b")
    mask = layers.conv2d(x, 2 * 9, 3, padding=1, stride=2, act="sigmoid", param_attr="m_w", bias_attr="m_b")
    h = layers.deformable_conv(
        x, offset, mask if modulated else None, 4, 3, 2, 1, deformable_groups=2, groups=2, im2col_step=1,
        param_attr="d_w", bias_attr="d_b", modulated=modulated,
    )  # fmt: skip
    return layers.reduce_mean(layers.square(layers.tanh(h) - 0.3))


def of_trees(fluid):
    """A convolution of trees, and the largest of each row; Paddle's gradient of the nodes is not right."""
    layers = fluid.layers
    words = fluid.data("words", *SHAPES["words"])
    words.stop_gradient = False  # Paddle insists on their gradient
    edges = fluid.data("edges", *SHAPES["edges"])
    h = fluid.contrib.layers.tree_conv(words, edges, 4, 2, 3, param_attr="t_w", bias_attr="t_b")
    return layers.reduce_mean(layers.square(layers.reduce_max(h, dim=1) - 0.5))


def of_classes(fluid, custom):
    """A hierarchical softmax behind a layer."""
    layers = fluid.layers
    x = fluid.data("words", *SHAPES["words"])
    label = fluid.data("label", *SHAPES["label"])
    h = layers.fc(x, 4, act="tanh", param_attr="f_w", bias_attr="f_b")
    ways = [fluid.data(name, *SHAPES[name]) for name in ("table", "code")] if custom else [None, None]
    loss = layers.hsigmoid(
        h, label, 5, param_attr="h_w", bias_attr="h_b", path_table=ways[0], path_code=ways[1], is_custom=custom
    )
    return layers.reduce_mean(loss)


def of_places(fluid, act):
    """In-place batch norm."""
    layers = fluid.layers
    x = fluid.data("images", *SHAPES["images"])
    h = layers.conv2d(x, 3, 3, param_attr="c_w", bias_attr=False)
    h = layers.inplace_abn(
        h, act, param_attr="n_w", bias_attr="n_b", moving_mean_name="mean", moving_variance_name="variance", act_alpha=0.3
    )
    return layers.reduce_mean(layers.square(h - 0.5))


NETS = {
    "bent": lambda fluid: bent(fluid, True),
    "bent_without_mask": lambda fluid: bent(fluid, False),
    "trees": of_trees,
    "classes": lambda fluid: of_classes(fluid, False),
    "classes_of_a_tree": lambda fluid: of_classes(fluid, True),
    "leaky_in_place": lambda fluid: of_places(fluid, "leaky_relu"),
    "elu_in_place": lambda fluid: of_places(fluid, "elu"),
}


def trained(fluid, name):
    """Return the ops of a net's program, and the losses of its steps."""
    main, startup = fluid.Program(), fluid.Program()
    with fluid.program_guard(main, startup), fluid.unique_name.guard():
        loss = NETS[name](fluid)
        fluid.optimizer.Momentum(0.2, 0.9).minimize(loss)
    exe, scope = fluid.Executor(fluid.CPUPlace()), fluid.Scope()
    with fluid.scope_guard(scope):
        exe.run(startup)
        for p in main.all_parameters():
            if p.trainable:
                scope.find_var(p.name).get_tensor().set(initial(p.name, p.shape), fluid.CPUPlace())
        read = {n for op in main.global_block().ops for n in op.input_arg_names}
        fed = [{k: v for k, v in feeds(step).items() if k in read} for step in range(STEPS)]
        losses = [exe.run(main, feed=feed, fetch_list=[loss])[0] for feed in fed]
    return {
        "ops": [op.type for op in main.global_block().ops],
        "losses": [float("%.7g" % np.ravel(value)[0]) for value in losses],
    }


def main():
    from paddle import fluid

    from compact_json import write

    write(Path(__file__).with_suffix(".json"), {name: trained(fluid, name) for name in NETS}, 2)


if __name__ == "__main__":
    main()
