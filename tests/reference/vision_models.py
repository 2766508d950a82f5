"""Make vision_models.json with Paddle 3.3.1: parameters of vision.models, and outputs of two of them.

Run:  python vision_models.py   (Python 3.11 with paddlepaddle==3.3.1)
{"states": {call: [number of values, number of elements, digest]}, "outputs": {call: {mode: [shape, numbers]}},
 "training": {call: {"losses": [of two steps], "slopes": {key: length of the first step's gradient}}}}
"""

import hashlib
import os
import sys

import numpy as np

# Calls over models, of which the keys, shapes and names of variables are recorded.
STATES = [
    "LeNet()",
    "alexnet(num_classes=3)",
    "vgg11(batch_norm=True, num_classes=0)",
    "resnet18(with_pool=False)",
    "resnext50_32x4d()",
    "wide_resnet50_2(num_classes=0)",
    "mobilenet_v1(scale=0.5)",
    "mobilenet_v2(scale=1.4)",
    "mobilenet_v3_small()",
    "mobilenet_v3_large(scale=0.35)",
    "densenet121()",
    "googlenet()",
    "inception_v3()",
    "shufflenet_v2_x0_33()",
    "squeezenet1_0()",
]
# Calls that also compute, and the shape of their images. Training in float64, for in the statistics of few places
# the roundings of float32 grow.
DTYPES = {"eval": "float32", "train": "float64"}
OUTPUTS = {
    "LeNet()": [2, 1, 28, 28],
    "mobilenet_v2(scale=0.25, num_classes=5)": [4, 3, 32, 32],
}
# Calls that take two steps of Momentum in float64, and the shape of their images.
TRAINING = {
    "resnet18(num_classes=3)": [2, 3, 64, 64],
    "mobilenet_v1(scale=0.25, num_classes=3)": [2, 3, 64, 64],
    "mobilenet_v3_small(scale=0.35, num_classes=3)": [2, 3, 64, 64],
    "shufflenet_v2_swish(num_classes=3)": [2, 3, 64, 64],
    "squeezenet1_1(num_classes=3)": [2, 3, 64, 64],
}


def watched(model):
    """Return the keys of parameters whose gradients are compared: some from all over the model."""
    keys = [key for key, _ in model.named_parameters() if not key.endswith(("_mean", "_variance"))]
    return keys[:: max(1, len(keys) // 8)]


def state(model):
    """Return how many values a model has, how many elements, and a digest of their keys, shapes and names."""
    rows = [(key, list(value.shape), value.name) for key, value in model.state_dict().items()]
    digest = hashlib.sha256(repr(rows).encode()).hexdigest()[:16]
    return [len(rows), sum(int(np.prod(shape)) for _, shape, _ in rows), digest]


def values(model, dtype="float32"):
    """Return values for a model's parameters by key, with which layers keep the size of what they read."""
    arrays = {}
    for number, (key, value) in enumerate(model.state_dict().items()):
        random, shape = np.random.RandomState(number), [int(size) for size in value.shape]
        if len(shape) > 1:
            fan_in = np.prod(shape[1:]) if len(shape) == 4 else shape[0]
            array = np.sqrt(1.5 / fan_in) * random.standard_normal(shape)
        elif key.endswith(("bias", "_mean")):
            array = 0.1 * random.standard_normal(shape)
        else:
            array = random.uniform(0.5, 1.5, shape)
        arrays[key] = array.astype(dtype)
    return arrays


def images(shape, dtype="float32"):
    return np.random.RandomState(7).standard_normal(shape).astype(dtype)


def trained(paddle, call, shape):
    """Two steps of a model on one batch, in the imperative mode."""
    paddle.set_default_dtype("float64")
    model = eval("paddle.vision.models." + call)
    for layer in model.sublayers():
        if isinstance(layer, paddle.nn.Dropout):
            layer.p = 0.0
    state_dict = {k: paddle.to_tensor(v) for k, v in values(model, "float64").items()}
    model.set_state_dict(state_dict)
    model.train()
    optimizer = paddle.optimizer.Momentum(0.01, 0.9, model.parameters())
    image, label = images(shape, "float64"), np.arange(shape[0]).reshape(-1, 1)
    losses, slopes = [], {}
    for _ in range(2):
        out = model(paddle.to_tensor(image))
        loss = paddle.nn.functional.cross_entropy(out, paddle.to_tensor(label))
        loss.backward()
        if not losses:
            own = dict(model.named_parameters())
            slopes = {k: float("%.7g" % np.linalg.norm(own[k].grad.numpy())) for k in watched(model)}
        losses.append(float("%.8g" % loss.numpy()))
        optimizer.step()
        optimizer.clear_grad()
    return {"losses": losses, "slopes": slopes}


def make():
    """Write the file."""
    import compact_json
    import paddle

    models = paddle.vision.models
    record = {"states": {}, "outputs": {}}
    for call in STATES:
        with paddle.utils.unique_name.guard():
            record["states"][call] = state(eval("models." + call))
    for call, shape in OUTPUTS.items():
        record["outputs"][call] = {}
        for mode, dtype in DTYPES.items():
            paddle.set_default_dtype(dtype)
            model = eval("models." + call)
            for layer in model.sublayers():
                if isinstance(layer, paddle.nn.Dropout):
                    layer.p = 0.0
            state_dict = {k: paddle.to_tensor(v) for k, v in values(model, dtype).items()}
            model.set_state_dict(state_dict)
            getattr(model, mode)()
            out = model(paddle.to_tensor(images(shape, dtype))).numpy()
            numbers = [float("%.7g" % x) for x in out.reshape(-1)]
            record["outputs"][call][mode] = [list(out.shape), numbers]
    record["training"] = {call: trained(paddle, call, TRAINING[call]) for call in TRAINING}
    compact_json.write(os.path.join(os.path.dirname(__file__), "vision_models.json"), record, 2)


if __name__ == "__main__":
    sys.path.insert(0, os.path.dirname(os.path.abspath(__file__)))
    make()
