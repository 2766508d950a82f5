"""Make op_attrs.json with Paddle 1.8.5: the attributes that an op has once it has been appended.

Run with a Python 3.7 that has paddlepaddle==1.8.5 and protobuf<3.20:  python generate_op_attrs.py

op_attrs.json  {op type: {"given": [attributes that the sample below sets itself, no defaults],
                          "attrs": {name: {"type": attribute type, "value": value}},
                          "inputs": {slot: flags}, "outputs": {slot: flags},
                          "grad": null or {"type", "count", "inputs": [slots],
                                           "outputs": [slots], "attrs"}}}
               count is how many gradient ops are made (sum makes one a term); grad has attrs only
               where the gradient is an ordinary op (sign's is scale by 0, cast's is a cast back).
               Gradient ops are entries of their own: {"gradient_of", "attrs", "inputs", "outputs"}
               with slots as lists. Their attributes are those of the sample's forward op, copied.
               flags is a list out of "dispensable", "duplicable", "intermediate".
               Left out of attrs: op_role, op_role_var, op_namescope, op_callstack, op_device.

A gradient op's slots are those that Paddle's grad maker writes for the sample, with nothing in the
no-gradient set; append_backward empties the outputs whose variable needs no gradient. Floats are
stored as float32 in Paddle, and are printed here as the shortest decimal that gives that float32.

Not ops in 1.8.5 but layers made of others: log_softmax, mse_loss, square_error_cost, l2_normalize.
"""

import os

import numpy as np
from paddle import fluid
from paddle.fluid.framework import OpProtoHolder

import compact_json

HERE = os.path.dirname(os.path.abspath(__file__))
LEFT_OUT = ("op_role", "op_role_var", "op_namescope", "op_callstack", "op_device")
FLOAT32, INT64 = 5, 3  # numbers of the data types

M = [4, 6]  # a matrix
IMAGE = [2, 4, 8, 8]
ONE = [1]


def ids(*shape):
    return (list(shape), "int64")


def flags(*shape):
    return (list(shape), "bool")


class Many(list):
    """Several variables in one slot."""


def same(names, inputs, **attrs):
    return {name: (inputs, attrs) for name in names.split()}


# {op type: (inputs {slot: shape, (shape, dtype) or Many of them}, attributes it must be given)}
SAMPLES = {}

# Elementwise.
SAMPLES.update(same("mul matmul", {"X": [4, 6], "Y": [6, 3]}))
SAMPLES.update(
    same(
        "elementwise_add elementwise_sub elementwise_mul elementwise_div elementwise_max"
        " elementwise_min elementwise_pow",
        {"X": M, "Y": M},
    )
)
SAMPLES.update(same("elementwise_mod elementwise_floordiv", {"X": ids(4, 6), "Y": ids(4, 6)}))
SAMPLES.update(
    same(
        "relu sigmoid tanh exp log sqrt rsqrt square abs reciprocal floor ceil round sin cos asin"
        " acos atan gelu leaky_relu relu6 brelu elu stanh soft_relu softplus softsign softshrink"
        " hard_shrink thresholded_relu tanh_shrink swish hard_sigmoid hard_swish logsigmoid selu"
        " pow scale sign assign mean cumsum softmax increment isfinite shape"
        " fill_zeros_like fill_any_like squared_l2_norm argsort dropout log1p erf isnan"
        " isinf",
        {"X": M},
    )
)
SAMPLES["shape"] = ({"Input": M}, {})
SAMPLES["increment"] = ({"X": ONE}, {})
SAMPLES["clip"] = ({"X": M}, {"min": -1.0, "max": 1.0})
SAMPLES["clip_by_norm"] = ({"X": M}, {"max_norm": 1.0})
SAMPLES["cast"] = ({"X": M}, {"in_dtype": FLOAT32, "out_dtype": INT64})
SAMPLES["sum"] = ({"X": Many([M, M])}, {})
SAMPLES["prelu"] = ({"X": M, "Alpha": ONE}, {"mode": "all"})

# Reductions and comparisons.
SAMPLES.update(same("reduce_sum reduce_mean reduce_max reduce_min reduce_prod", {"X": M}))
SAMPLES.update(same("reduce_all reduce_any", {"X": flags(4, 6)}))
SAMPLES.update(
    same(
        "less_than less_equal greater_than greater_equal equal not_equal",
        {"X": M, "Y": M},
    )
)
SAMPLES.update(same("logical_and logical_or logical_xor", {"X": flags(4, 6), "Y": flags(4, 6)}))
SAMPLES["logical_not"] = ({"X": flags(4, 6)}, {})
SAMPLES.update(same("arg_max arg_min", {"X": M}, axis=1))
SAMPLES["top_k"] = ({"X": M}, {"k": 2})
SAMPLES["norm"] = ({"X": M}, {"axis": 1})
SAMPLES["where"] = ({"Condition": flags(4, 6), "X": M, "Y": M}, {})

# Shapes and indices.
SAMPLES["reshape2"] = ({"X": M}, {"shape": [6, 4]})
SAMPLES["transpose2"] = ({"X": M}, {"axis": [1, 0]})
SAMPLES["squeeze2"] = ({"X": [4, 1, 6]}, {"axes": [1]})
SAMPLES["unsqueeze2"] = ({"X": M}, {"axes": [1]})
SAMPLES["flatten2"] = ({"X": IMAGE}, {})
SAMPLES["reshape"] = ({"X": M}, {"shape": [6, 4]})
SAMPLES["transpose"] = ({"X": M}, {"axis": [1, 0]})
SAMPLES["squeeze"] = ({"X": [4, 1, 6]}, {"axes": [1]})
SAMPLES["unsqueeze"] = ({"X": M}, {"axes": [1]})
SAMPLES["flatten"] = ({"X": IMAGE}, {})
SAMPLES["concat"] = ({"X": Many([M, M])}, {})
SAMPLES["split"] = ({"X": M}, {"num": 2, "axis": 1})
SAMPLES["stack"] = ({"X": Many([M, M])}, {})
SAMPLES["unstack"] = ({"X": [2, 6]}, {"axis": 0, "num": 2})
SAMPLES["slice"] = ({"Input": M}, {"axes": [0], "starts": [0], "ends": [2]})
SAMPLES["expand"] = ({"X": M}, {"expand_times": [2, 1]})
SAMPLES["gather"] = ({"X": M, "Index": ids(3)}, {})
SAMPLES["gather_nd"] = ({"X": M, "Index": ids(3, 1)}, {})
SAMPLES["scatter"] = ({"X": M, "Ids": ids(3), "Updates": [3, 6]}, {})
SAMPLES["one_hot"] = ({"X": ids(4, 1)}, {"depth": 5})
SAMPLES["one_hot_v2"] = ({"X": ids(4)}, {"depth": 5})
SAMPLES["pad"] = ({"X": M}, {"paddings": [0, 1, 0, 1]})
SAMPLES["pad2d"] = ({"X": IMAGE}, {"paddings": [1, 1, 1, 1]})

# Constants and random numbers.
SAMPLES["assign_value"] = (
    {},
    {"shape": [2], "dtype": FLOAT32, "fp32_values": [1.0, 2.0]},
)
SAMPLES["fill_constant"] = ({}, {"shape": [2, 3]})
SAMPLES["fill_constant_batch_size_like"] = ({"Input": M}, {"shape": [-1, 3]})
SAMPLES.update(same("uniform_random gaussian_random truncated_gaussian_random", {}, shape=[2, 3]))
SAMPLES["range"] = ({"Start": ONE, "End": ONE, "Step": ONE}, {})

# Networks.
SAMPLES["conv2d"] = ({"Input": IMAGE, "Filter": [3, 4, 3, 3]}, {})
SAMPLES["depthwise_conv2d"] = ({"Input": IMAGE, "Filter": [4, 1, 3, 3]}, {"groups": 4})
SAMPLES["conv2d_transpose"] = ({"Input": IMAGE, "Filter": [4, 3, 3, 3]}, {})
VOLUME = [2, 4, 5, 5, 5]
SAMPLES["depthwise_conv2d_transpose"] = ({"Input": IMAGE, "Filter": [4, 1, 3, 3]}, {"groups": 4})
SAMPLES["conv3d"] = ({"Input": VOLUME, "Filter": [3, 4, 3, 3, 3]}, {})
SAMPLES["conv3d_transpose"] = ({"Input": VOLUME, "Filter": [4, 3, 3, 3, 3]}, {})
SAMPLES["pool3d"] = ({"X": VOLUME}, {"pooling_type": "max", "ksize": [2, 2, 2]})
SAMPLES["max_pool2d_with_index"] = ({"X": IMAGE}, {"ksize": [2, 2]})
SAMPLES["max_pool3d_with_index"] = ({"X": VOLUME}, {"ksize": [2, 2, 2]})
SAMPLES["unpool"] = (
    {"X": IMAGE, "Indices": (IMAGE, "int32")},
    {"ksize": [2, 2], "strides": [2, 2], "paddings": [0, 0], "unpooling_type": "max"},
)
SAMPLES["spp"] = ({"X": IMAGE}, {"pyramid_height": 2, "pooling_type": "max"})
SAMPLES["pool2d"] = ({"X": IMAGE}, {"pooling_type": "max", "ksize": [2, 2]})
SAMPLES["batch_norm"] = (
    {"X": IMAGE, "Scale": [4], "Bias": [4], "Mean": [4], "Variance": [4]},
    {},
)
SAMPLES["layer_norm"] = ({"X": M, "Scale": [6], "Bias": [6]}, {})
SAMPLES["group_norm"] = ({"X": IMAGE, "Scale": [4], "Bias": [4]}, {"groups": 2})
SAMPLES["instance_norm"] = ({"X": IMAGE, "Scale": [4], "Bias": [4]}, {})
SAMPLES["lookup_table"] = ({"W": [10, 3], "Ids": ids(4, 1)}, {})
SAMPLES["lookup_table_v2"] = ({"W": [10, 3], "Ids": ids(4)}, {})
SAMPLES["lookup_table_dequant"] = ({"W": [10, 3], "Ids": ids(4, 1)}, {})
SAMPLES["tdm_sampler"] = (
    {"X": ids(4, 1), "Travel": ids(4, 2), "Layer": ids(6, 1)},
    {"neg_samples_num_list": [1, 2], "layer_offset_lod": [0, 2, 6]},
)
SAMPLES["rank_attention"] = ({"X": M, "RankOffset": ([4, 7], "int32"), "RankParam": [54, 2]}, {})

# Losses and metrics.
SAMPLES.update(same("cross_entropy cross_entropy2", {"X": M, "Label": ids(4, 1)}))
SAMPLES["softmax_with_cross_entropy"] = ({"Logits": M, "Label": ids(4, 1)}, {})
SAMPLES["sigmoid_cross_entropy_with_logits"] = ({"X": M, "Label": M}, {})
SAMPLES["huber_loss"] = ({"X": [4, 1], "Y": [4, 1]}, {"delta": 1.0})
SAMPLES["smooth_l1_loss"] = ({"X": M, "Y": M}, {})
SAMPLES["log_loss"] = ({"Predicted": [4, 1], "Labels": [4, 1]}, {"epsilon": 1e-4})
SAMPLES["kldiv_loss"] = ({"X": M, "Target": M}, {})
SAMPLES["accuracy"] = ({"Out": [4, 1], "Indices": ids(4, 1), "Label": ids(4, 1)}, {})
SAMPLES["auc"] = (
    {
        "Predict": [4, 2],
        "Label": ids(4, 1),
        "StatPos": ids(1, 4096),
        "StatNeg": ids(1, 4096),
    },
    {},
)

# Optimizers.
STEP = {"Param": M, "Grad": M, "LearningRate": ONE}
POWERS = {"Moment1": M, "Moment2": M, "Beta1Pow": ONE, "Beta2Pow": ONE}
SAMPLES["sgd"] = (STEP, {})
SAMPLES["momentum"] = (dict(STEP, Velocity=M), {"mu": 0.9})
SAMPLES["adam"] = (dict(STEP, **POWERS), {})
SAMPLES["lamb"] = (dict(STEP, **POWERS), {"weight_decay": 0.01})
SAMPLES["adagrad"] = (dict(STEP, Moment=M), {})
SAMPLES["adamax"] = (dict(STEP, Moment=M, InfNorm=M, Beta1Pow=ONE), {})
SAMPLES["rmsprop"] = (dict(STEP, MeanSquare=M, MeanGrad=M, Moment=M), {})
SAMPLES["adadelta"] = (
    {"Param": M, "Grad": M, "AvgSquaredGrad": M, "AvgSquaredUpdate": M},
    {},
)
SAMPLES["ftrl"] = (dict(STEP, SquaredAccumulator=M, LinearAccumulator=M), {})
SAMPLES["decayed_adagrad"] = (dict(STEP, Moment=M), {})
SAMPLES["lars_momentum"] = (dict(STEP, Velocity=M), {"mu": 0.9})
SAMPLES["coalesce_tensor"] = ({"Input": Many([M, M])}, {"dtype": FLOAT32})

# Outputs of which there are two, and outputs that have to be named though they are dispensable.
TWO_OUTPUTS = {"split": "Out", "unstack": "Y", "coalesce_tensor": "Output"}
EXTRA_OUTPUTS = {"rmsprop": ["MeanGradOut"], "tdm_sampler": ["Labels"]}
# Outputs that Paddle wants to be the very variables of an input.
IN_PLACE = {"batch_norm": {"MeanOut": "Mean", "VarianceOut": "Variance"}}


def plain(value):
    """float32 values as their shortest decimal."""
    if isinstance(value, float):
        return float(str(np.float32(value)))
    if isinstance(value, list):
        return [plain(item) for item in value]
    return value


def attributes(desc):
    described = {}
    for name in sorted(desc.attr_names()):
        if name not in LEFT_OUT:
            kind = str(desc.attr_type(name)).split(".")[-1]
            described[name] = {"type": kind, "value": plain(desc.attr(name))}
    return described


def slots(protos):
    kinds = ("dispensable", "duplicable", "intermediate")
    return {slot.name: [kind for kind in kinds if getattr(slot, kind)] for slot in protos}


def make_inputs(block, inputs):
    by_slot = {}
    for slot, wanted in inputs.items():
        variables = []
        for item in wanted if isinstance(wanted, Many) else [wanted]:
            shape, dtype = item if isinstance(item, tuple) else (item, "float32")
            variables.append(block.create_var(shape=shape, dtype=dtype, stop_gradient=False))
        by_slot[slot] = variables
    return by_slot


def make_outputs(block, op_type, proto, inputs):
    in_place = IN_PLACE.get(op_type, {})
    outputs = {slot: inputs[source] for slot, source in in_place.items()}
    for slot in proto.outputs:
        wanted = not slot.dispensable or slot.name in EXTRA_OUTPUTS.get(op_type, ())
        if slot.name in outputs or not wanted:
            continue
        count = 2 if TWO_OUTPUTS.get(op_type) == slot.name else 1
        outputs[slot.name] = [block.create_var(dtype="float32") for _ in range(count)]
    return outputs


def describe_op(op_type):
    """The entry of one forward op, and {type: entry} of its gradient op."""
    inputs, attrs = SAMPLES[op_type]
    proto = OpProtoHolder.instance().get_op_proto(op_type)
    with fluid.program_guard(fluid.Program(), fluid.Program()):
        block = fluid.default_main_program().global_block()
        variables = make_inputs(block, inputs)
        op = block.append_op(
            type=op_type,
            inputs=variables,
            outputs=make_outputs(block, op_type, proto, variables),
            attrs=attrs,
        )
        entry = {
            "given": sorted(attrs),
            "attrs": attributes(op.desc),
            "inputs": slots(proto.inputs),
            "outputs": slots(proto.outputs),
            "grad": None,
        }
        gradients = {}
        try:
            grads, _ = fluid.core.get_grad_op_desc(op.desc, set(), [])
        except fluid.core.EnforceNotMet:
            grads = []  # the op has no grad maker at all
        for desc in grads:
            grad = {"inputs": desc.input_names(), "outputs": desc.output_names()}
            entry["grad"] = dict(grad, type=desc.type(), count=len(grads))
            if desc.type() in SAMPLES:
                entry["grad"]["attrs"] = attributes(desc)
            gradients[desc.type()] = dict(grad, gradient_of=op_type, attrs=attributes(desc))
    return entry, gradients


def main():
    forward = {}
    gradient = {}
    for op_type in sorted(SAMPLES):
        forward[op_type], gradients = describe_op(op_type)
        for name, entry in gradients.items():
            # sign's gradient op is scale and assign's is assign: a forward entry stays.
            gradient.setdefault(name, entry)
    record = dict(forward)
    record.update({name: gradient[name] for name in sorted(gradient) if name not in forward})
    compact_json.write(os.path.join(HERE, "op_attrs.json"), record, depth=3)


if __name__ == "__main__":
    main()
