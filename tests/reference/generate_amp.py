"""Make amp.json with Paddle 3.3.1 and amp185.json with Paddle 1.8.5: programs rewritten for mixed precision.

Run with a Python that has paddlepaddle==3.3.1 (3.11), and with one that has 1.8.5:  python generate_amp.py

Without a GPU Paddle 3 has no kernels to choose from and calls every op unsupported, so its list of them is
emptied. Nets: see NETS. Dtypes are "fp16", "bf16", "fp32" or another word.

{"programs": {"net level dtype": {"ops": [[type, {slot: [dtype]}, {slot: [dtype]}]], "casts": [[from, to]]}}}
and in amp.json    {"scaling": [{"found": [bool], "attrs": {}, "start": scale, "after": [[scale, good, bad]]}],
                    "losses": {"initial": {parameter: array}, "feed": {}, "bfloat16": [loss per step]}}
and in amp185.json {"steps": {optimizer: [{"scale": scale, "values": {parameter: array}} per step]},
                    "initial", "feed", "settings"}: float32 alone; x holds an infinity in steps 1 and 2.
"""

import os

os.environ["FLAGS_enable_pir_api"] = "0"

import compact_json
import numpy as np
import paddle

HERE = os.path.dirname(os.path.abspath(__file__))
OLD = paddle.__version__.startswith("1.8")
SHAPES = {"w1": (4, 3), "b1": (3,), "w2": (3, 2), "b2": (2,)}
INCREASE = {"incr_every_n_steps": 3, "decr_every_n_nan_or_inf": 2, "incr_ratio": 2.0}

if OLD:
    import paddle.fluid as fluid
    from paddle.fluid import unique_name
    from paddle.fluid.contrib import mixed_precision

    static, L = fluid, fluid.layers
    relu, softmax, mean, add, reshape = L.relu, L.softmax, L.mean, L.elementwise_add, L.reshape
    fc, conv2d, batch_norm, embedding = L.fc, L.conv2d, L.batch_norm, fluid.embedding
    loss_of = L.softmax_with_cross_entropy
else:
    from paddle import static
    from paddle.base import unique_name

    paddle.enable_static()
    F = paddle.nn.functional
    relu, softmax, mean, add, reshape = F.relu, F.softmax, paddle.mean, paddle.add, paddle.reshape
    fc, conv2d, batch_norm = static.nn.fc, static.nn.conv2d, static.nn.batch_norm
    embedding, loss_of = static.nn.embedding, F.softmax_with_cross_entropy


def mlp():
    return fc(relu(fc(static.data("x", [None, 8], "float32"), 16)), 3)


def conv():
    x = static.data("x", [None, 1, 8, 8], "float32")
    image = relu(batch_norm(conv2d(x, 4, 3, bias_attr=False)))
    return fc(image, 3)


def residual():
    hidden = fc(static.data("x", [None, 8], "float32"), 8)
    return fc(add(hidden, softmax(hidden)), 3)


def rows():
    vectors = embedding(static.data("ids", [None, 2], "int64"), [10, 4])
    return fc(reshape(vectors, [-1, 8]), 3)


def early():
    return fc(relu(static.data("x", [None, 8], "float32")), 3)


NETS = {"mlp": mlp, "conv": conv, "residual": residual, "rows": rows, "early": early}


def word(dtype):
    """The name of an element type"""
    known = {"bfloat16": "bf16", "float16": "fp16", "float32": "fp32"}
    text = str(dtype).lower().split(".")[-1]
    return known.get(text, text if text in known.values() else "other")


def decorated(optimizer, level, dtype):
    """The optimizer for a level"""
    if OLD:
        return mixed_precision.decorate(optimizer)
    lists = static.amp.CustomOpLists(dtype=dtype)
    lists.unsupported_list = set()
    return static.amp.decorate(optimizer, lists, level=level, dtype=dtype)


def program(net, level, dtype):
    """The forward part of a rewritten program"""
    main, startup = static.Program(), static.Program()
    with static.program_guard(main, startup), unique_name.guard():
        label = static.data("y", [None, 1], "int64")
        loss = mean(loss_of(NETS[net](), label))
        sgd = fluid.optimizer.SGD(0.1) if OLD else paddle.optimizer.SGD(0.1)
        decorated(sgd, level, dtype).backward(loss)
    block = main.global_block()
    ops, casts = [], []
    for op in block.ops:
        if op.type == "elementwise_mul":  # by the scale: behind it is the backward pass
            break
        if op.type == "cast" and op.output("Out")[0].startswith(op.input("X")[0] + ".cast_"):
            kinds = [word(block.var(n).dtype) for n in (op.input("X")[0], op.output("Out")[0])]
            casts.append([op.input("X")[0], kinds[1]])
        elif op.type not in ("cast", "fill_constant"):
            types = [
                {s: [word(block.var(n).dtype) for n in read(s)] for s in names if read(s)}
                for names, read in ((op.input_names, op.input), (op.output_names, op.output))
            ]
            ops.append([op.type, types[0], types[1]])
    return {"ops": ops, "casts": sorted(casts)}


def scaling():
    """Paddle 3's kernel, call by call"""
    paddle.disable_static()
    cases = []
    for start, decr, bits in (
        (8.0, 0.5, "00010001100000001111"),
        (1.5, 0.5, "1100"),
        (3e38, 0.5, "0000"),
        (16.0, 0.8, "11011011"),
    ):
        state = [paddle.to_tensor([start]), *(paddle.to_tensor([0], dtype="int32") for _ in "gb")]
        after = []
        for bit in bits:
            x = paddle.to_tensor([1.0])
            flag = paddle.to_tensor([bit == "1"])
            paddle._C_ops.update_loss_scaling_([x], flag, *state, 3, 2, 2.0, decr, False)
            assert x.numpy()[0] == (bit == "0")
            after.append([one.numpy()[0] for one in state])
        attrs = dict(INCREASE, decr_ratio=decr)
        cases.append(
            {"start": start, "found": [b == "1" for b in bits], "attrs": attrs, "after": after}
        )
    paddle.enable_static()
    return cases


def drawn():
    """Parameters and feed"""
    rng = np.random.RandomState(3)
    initial = {name: rng.uniform(-1, 1, shape).astype("float32") for name, shape in SHAPES.items()}
    x = rng.uniform(-1, 1, (6, 4)).astype("float32")
    return initial, {"x": x, "y": x[:, :2].argmax(1).reshape(-1, 1)}


def net(initial):
    """x[6, 4], fc 3 relu, fc 2, softmax cross entropy; returns the loss"""

    def attr(name):
        values = initial[name]
        if OLD:
            return fluid.ParamAttr(name, fluid.initializer.NumpyArrayInitializer(values))
        return paddle.ParamAttr(name, paddle.nn.initializer.Assign(values))

    def layer(x, size, k):
        names = {"param_attr" if OLD else "weight_attr": attr(f"w{k}"), "bias_attr": attr(f"b{k}")}
        return fc(x, size, **names)

    x, y = static.data("x", [None, 4], "float32"), static.data("y", [None, 1], "int64")
    return mean(loss_of(layer(relu(layer(x, 3, 1)), 2, 2), y))


def losses():
    """bfloat16 at level O1, by momentum"""
    initial, feed = drawn()
    main, startup = static.Program(), static.Program()
    with static.program_guard(main, startup), unique_name.guard():
        loss = net(initial)
        decorated(paddle.optimizer.Momentum(0.1, 0.9), "O1", "bfloat16").minimize(loss)
    exe = static.Executor(paddle.CPUPlace())
    exe.run(startup)
    values = [exe.run(main, feed=feed, fetch_list=[loss.name])[0].reshape(-1)[0] for _ in range(8)]
    return {"initial": initial, "feed": feed, "bfloat16": values}


def overflows():
    """What Paddle 1.8.5 does with gradients that are not finite"""
    initial, feed = drawn()
    settings = {"init_loss_scaling": 64.0, "decr_every_n_nan_or_inf": 1, "decr_ratio": 0.5}
    cases = {}
    for name, optimizer in {
        "sgd": lambda: fluid.optimizer.SGD(0.1),
        "momentum": lambda: fluid.optimizer.Momentum(0.1, 0.9),
        "adam": lambda: fluid.optimizer.Adam(0.1),
    }.items():
        main, startup, scope = fluid.Program(), fluid.Program(), fluid.core.Scope()
        with fluid.program_guard(main, startup), unique_name.guard(), fluid.scope_guard(scope):
            loss = net(initial)
            lists = mixed_precision.AutoMixedPrecisionLists(custom_black_list={"mul"})
            wrapped = mixed_precision.decorate(optimizer(), lists, **settings)
            wrapped.minimize(loss)
            exe = fluid.Executor(fluid.CPUPlace())
            exe.run(startup)
            steps = []
            for step in range(5):
                x = feed["x"].copy()
                if step in (1, 2):
                    x[0, 0] = np.inf
                (scale,) = exe.run(main, dict(feed, x=x), [wrapped.get_loss_scaling()])
                values = {n: np.array(scope.find_var(n).get_tensor()) for n in initial}
                steps.append({"scale": float(scale), "values": values})
        cases[name] = steps
    return {"steps": cases, "initial": initial, "feed": feed, "settings": settings}


def lists(value):
    """The same with lists in place of arrays"""
    if isinstance(value, dict):
        return {key: lists(item) for key, item in value.items()}
    if isinstance(value, list):
        return [lists(item) for item in value]
    return value.tolist() if hasattr(value, "tolist") else value


def main():
    """Write the file of this Paddle."""
    kinds = [("O1", "float16")]
    if not OLD:
        kinds += [("O1", "bfloat16"), ("O2", "float16"), ("O2", "bfloat16")]
    record = {"programs": {" ".join((n, *kind)): program(n, *kind) for n in NETS for kind in kinds}}
    if OLD:
        record.update(overflows())
    else:
        record.update(scaling=scaling(), losses=losses())
    compact_json.write(os.path.join(HERE, "amp185.json" if OLD else "amp.json"), lists(record), 3)


if __name__ == "__main__":
    main()
