"""Layers that follow trees: of words, of classes, and of beams."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import accumulate
from typing import Any

from ...strategies.errors import InvalidType, InvalidValue
from ...strategies.types import VarType, to_var_type
from ..program.variable import Variable
from . import shape as shapes
from .arguments import Floats, Integers, integers
from .helper import LayerHelper, layer
from .initializer import ConstantInitializer


def tree_conv(
    nodes_vector: Floats,
    edge_set: Integers,
    output_size: int,
    num_filters: int = 1,
    max_depth: int = 2,
    act: str | None = "tanh",
    param_attr: Any = None,
    bias_attr: Any = None,
    name: str | None = None,
) -> Variable:
    """Convolve trees: what lies less than ``max_depth`` below each node. Mou et al., arXiv 1409.5718.

    Args:
        nodes_vector: [trees, nodes, features], floats.
        edge_set: [trees, edges, 2], integers: parent and child, from 1; 0 ends the edges.

    Returns:
        [trees, nodes, output_size, num_filters].

    Raises:
        InvalidType, InvalidValue: an argument does not fit.
    """
    if nodes_vector.ndim != 3 or (nodes_vector.shape or ())[2] < 0:
        raise InvalidValue(
            "tree_conv: nodes_vector must be [trees, nodes, features] of known width."
        )
    helper = LayerHelper("tree_conv", name)
    shape = [(nodes_vector.shape or ())[2], 3, output_size, num_filters]
    filters = helper.create_parameter(param_attr, shape, nodes_vector.dtype)
    if filters is None:
        raise InvalidValue("tree_conv: param_attr cannot be False: a convolution needs filters.")
    operands = {"nodes_vector": nodes_vector, "edge_set": edge_set, "filter": filters}
    out = helper.layer("tree_conv", **operands, max_depth=max_depth)
    return helper.activate(helper.add_bias(out, bias_attr), act)


def gather_tree(ids: Integers, parents: Integers) -> Variable:
    """Follow beams back from their last steps: ids and parents (of beams), integers [steps, batch, beams]."""
    return layer("gather_tree", ids=ids, parents=parents)


def tdm_child(
    x: Integers, node_nums: int, child_nums: int, param_attr: Any = None, dtype: Any = "int32"
) -> tuple[Variable, Variable]:
    """Return the children of nodes of a tree, [..., child_nums], and 1 where a child stands for an item.

    Args:
        x: integers below ``node_nums``; node 0 is none.
        param_attr: of the tree, [node_nums, 3 + child_nums]: item, layer, parent and children of each node,
            0 where there is none.
        dtype: of the tree and of the results, int32 or int64.
    """
    helper, number = LayerHelper("tdm_child"), _integer_type(dtype, "dtype", "tdm_child")
    tree = _tree(helper, param_attr, [node_nums, 3 + child_nums], dtype, "tdm_child")
    fields = {"x": x, "tree_info": tree, "child_nums": child_nums, "dtype": number}
    child, leaf_mask = helper.constant_layers("tdm_child", "Child LeafMask", **fields)
    return child, leaf_mask


def tdm_sampler(
    x: Integers,
    neg_samples_num_list: Sequence[int],
    layer_node_num_list: Sequence[int],
    leaf_node_num: int,
    tree_travel_attr: Any = None,
    tree_layer_attr: Any = None,
    output_positive: bool = True,
    output_list: bool = True,
    seed: int = 0,
    tree_dtype: Any = "int32",
    dtype: Any = "int32",
) -> tuple[Any, Any, Any]:
    """Return, layer by layer of a tree, an item's node and others of the layer, their labels and masks.

    Others are drawn without replacement, each as likely. Labels are 1 for the item's nodes. Where an item has
    no node in a layer (0), nodes, labels and masks are 0; other masks are 1. Zhu et al., arXiv 1801.02294.

    Args:
        x: items, integers below ``leaf_node_num``.
        neg_samples_num_list: how many others are drawn of each layer, from below the root on.
        layer_node_num_list: how many nodes each layer has.
        tree_travel_attr: of the ways to items, [leaf_node_num, layers]: nodes, 0 where an item has none.
        tree_layer_attr: of the nodes of all layers, one layer behind the other: [nodes, 1].
        output_list: return a list of [N, nodes of the layer, 1] each, else [N, nodes of all layers].
        seed: other than 0: the same are drawn in each step.
        dtype: of the results, int32 or int64; ``tree_dtype`` is that of the tree.

    Raises:
        InvalidType, InvalidValue: an argument does not fit.
    """
    number = _integer_type(dtype, "dtype", "tdm_sampler")
    _integer_type(tree_dtype, "tree_dtype", "tdm_sampler")
    counts = integers(neg_samples_num_list, "neg_samples_num_list", "tdm_sampler")
    sizes = integers(layer_node_num_list, "layer_node_num_list", "tdm_sampler")
    if len(counts) != len(sizes):
        raise InvalidValue(
            f"tdm_sampler: neg_samples_num_list has {len(counts)} layers, layer_node_num_list {len(sizes)}."
        )
    if leaf_node_num >= sum(sizes):
        raise InvalidValue(
            f"tdm_sampler: leaf_node_num {leaf_node_num} must be below the {sum(sizes)} nodes of all layers."
        )
    helper = LayerHelper("tdm_sampler")
    inputs = {"X": x}
    for slot, attr, shape in (
        ("Travel", tree_travel_attr, [leaf_node_num, len(sizes)]),
        ("Layer", tree_layer_attr, [sum(sizes), 1]),
    ):
        inputs[slot] = _tree(helper, attr, shape, tree_dtype, "tdm_sampler")
    nodes, labels, mask = helper.constant_layers(
        "tdm_sampler",
        "Out Labels Mask",
        **inputs,
        neg_samples_num_list=counts,
        output_positive=output_positive,
        layer_offset_lod=[0, *accumulate(sizes)],
        seed=seed,
        dtype=number,
    )
    if not output_list:
        return nodes, labels, mask
    widths = [count + bool(output_positive) for count in counts]
    layers = [
        _columns((nodes, labels, mask), end - width, width)
        for end, width in zip(accumulate(widths), widths, strict=True)
    ]
    return tuple(map(list, zip(*layers, strict=True)))  # type: ignore[return-value]  # of three


def _columns(results: Sequence[Variable], begin: int, width: int) -> list[Variable]:
    """Return the columns that belong to a layer: [N, width, 1] of each."""
    parts = [shapes.slice(whole, [1], [begin], [begin + width]) for whole in results]
    columns = [shapes.reshape(part, [-1, width, 1]) for part in parts]
    for column in columns:
        column.stop_gradient = True
    return columns


def _integer_type(dtype: Any, argument: str, layer: str) -> VarType:
    number = to_var_type(dtype)
    if number not in (VarType.INT32, VarType.INT64):
        raise InvalidType(f"{layer}: {argument} must be int32 or int64, got {dtype!r}.")
    return number


def _tree(helper: LayerHelper, attr: Any, shape: list[int], dtype: Any, layer: str) -> Variable:
    """Create a table that tells of a tree: zeros unless ``attr`` has an initializer."""
    zeros = ConstantInitializer(0)
    tree = helper.create_parameter(
        attr, shape, dtype, default_initializer=zeros, stop_gradient=True
    )
    if tree is None:
        raise InvalidValue(f"{layer}: the tree's attribute cannot be False: it needs a tree.")
    return tree


def hsigmoid(
    input: Floats,
    label: Integers,
    num_classes: int | None,
    param_attr: Any = None,
    bias_attr: Any = None,
    name: str | None = None,
    path_table: Variable | None = None,
    path_code: Variable | None = None,
    is_custom: bool = False,
    is_sparse: bool = False,
) -> Variable:
    """The loss of binary decisions on the way to each class: [N, 1]. Morin and Bengio, AISTATS 2005.

    Args:
        input: [N, D], floats.
        label: [N, 1], integers below ``num_classes``.
        num_classes: of the default tree 2 or more; with ``is_custom`` the nodes that are no classes.
        path_table: [N, steps], the nodes on each row's way, -1 behind its end; only with ``is_custom``.
        path_code: [N, steps], 0 or 1 for each node; any other number counts as 1.
        is_sparse: with ``is_custom`` the weight's gradient is rows.

    Raises:
        InvalidType, InvalidValue: an argument does not fit.
    """
    if num_classes is None or (num_classes < 2 and not is_custom):
        raise InvalidValue(f"hsigmoid: num_classes must be 2 or more, got {num_classes}.")
    if is_custom != (path_table is not None) or is_custom != (path_code is not None):
        raise InvalidValue("hsigmoid: path_table and path_code go with is_custom, both.")
    width = (input.shape or (0, -1))[1:]
    if len(width) != 1 or width[0] < 0:
        raise InvalidValue(f"hsigmoid: input must be [N, D] with D known, not {input.shape}.")
    helper = LayerHelper("hierarchical_sigmoid", name)
    nodes = num_classes if is_custom else num_classes - 1
    weight = helper.create_parameter(param_attr, [nodes, width[0]], input.dtype)
    if weight is None:
        raise InvalidValue("hsigmoid: param_attr cannot be False: decisions need weights.")
    bias = helper.create_parameter(bias_attr, [nodes, 1], input.dtype, is_bias=True)
    return way_loss(
        input,
        label,
        num_classes,
        weight,
        bias,
        path_table,
        path_code,
        bool(is_sparse and is_custom),
        helper,
    )


def way_loss(
    input: Variable,
    label: Variable,
    num_classes: int,
    weight: Variable,
    bias: Variable | None,
    path_table: Variable | None,
    path_code: Variable | None,
    is_sparse: bool,
    helper: LayerHelper,
) -> Variable:
    """Append hierarchical_sigmoid with parameters that exist."""
    loss, _ = helper.layers(
        "hierarchical_sigmoid",
        "Out PreOut",
        x=input,
        w=weight,
        label=label,
        path_table=path_table,
        path_code=path_code,
        bias=bias,
        w_out=weight,
        num_classes=num_classes,
        is_sparse=is_sparse,
        remote_prefetch=is_sparse,
    )
    return loss
