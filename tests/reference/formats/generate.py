"""Make the files in paddle185/ or paddle331/ beside this script with the Paddle that runs it.

    python generate.py        with Python 3.7, paddlepaddle==1.8.5 and protobuf<3.20
    FLAGS_enable_pir_api=0 python generate.py        with paddlepaddle==3.3.1

Each model comes with expected.json: {model: {"feed": {name: array}, "fetch": [array]}}. Call stacks are taken out of the
programs, since they hold nothing but paths of the machine; the rest is as Paddle wrote it.
"""

import json
import os
import sys

import numpy as np

from models import MODELS, dense

HERE = os.path.dirname(os.path.abspath(__file__))
OLD = sys.version_info < (3, 8)
TARGET = os.path.join(HERE, "paddle185" if OLD else "paddle331")

if OLD:
    from paddle import fluid
    from paddle.fluid.proto import framework_pb2 as messages
else:
    import paddle
    from paddle.base.proto import framework_pb2 as messages


def strip(path):
    """Take the call stacks out of a program's file."""
    with open(path, "rb") as file:
        program = messages.ProgramDesc.FromString(file.read())
    for block in program.blocks:
        for op in block.ops:
            for attr in [a for a in op.attrs if a.name == "op_callstack"]:
                op.attrs.remove(attr)
    with open(path, "wb") as file:
        file.write(program.SerializeToString())


def values(program, scope, random):
    """Give every parameter a value of its own, and statistics and states one that is not the first."""
    for variable in program.list_vars():
        if variable.persistable and scope.find_var(variable.name) is not None:
            tensor = scope.find_var(variable.name).get_tensor()
            old = np.array(tensor)
            new = random.uniform(0.1, 0.5, old.shape).astype(old.dtype)
            tensor.set(new, fluid.CPUPlace() if OLD else paddle.CPUPlace())


def expected(models):
    with open(os.path.join(TARGET, "expected.json"), "w") as file:
        json.dump(models, file, indent=1)
        file.write("\n")


# --- 1.8.5 ----------------------------------------------------------------------------------------


def old_models(random):
    models = {}
    for name, build, params in MODELS:
        main, startup, scope = fluid.Program(), fluid.Program(), fluid.Scope()
        exe = fluid.Executor(fluid.CPUPlace())
        with (
            fluid.program_guard(main, startup),
            fluid.unique_name.guard(),
            fluid.scope_guard(scope),
        ):
            feeds, fetches = build(fluid)
            exe.run(startup)
            values(main, scope, random)
            folder = os.path.join(TARGET, name)
            names = [v.name for v in feeds]
            fluid.io.save_inference_model(folder, names, fetches, exe, main, None, params)
            model, fed, fetched = fluid.io.load_inference_model(folder, exe, None, params)
            shape = [2] + list(feeds[0].shape[1:])
            data = random.randint(0, 12, shape) if name == "words" else random.rand(*shape)
            data = data.astype("int64" if name == "words" else "float32")
            results = exe.run(model, {fed[0]: data}, fetched)
        strip(os.path.join(folder, "__model__"))
        models[name] = {
            "feed": {fed[0]: data.tolist()},
            "fetch": [r.tolist() for r in results],
        }
    return models


def old_state(random):
    main, startup, scope = fluid.Program(), fluid.Program(), fluid.Scope()
    exe = fluid.Executor(fluid.CPUPlace())
    with fluid.program_guard(main, startup), fluid.unique_name.guard(), fluid.scope_guard(scope):
        feeds, (prediction,) = dense(fluid)
        y = fluid.layers.data("y", [1], dtype="int64")
        loss = fluid.layers.mean(fluid.layers.cross_entropy(prediction, y))
        fluid.optimizer.Adam(0.1).minimize(loss)
        exe.run(startup)
        values(main, scope, random)
        fluid.save(main, os.path.join(TARGET, "state"))
        strip(os.path.join(TARGET, "state.pdmodel"))


def old_blocks():
    """A program with nested blocks, arrays, sparse rows, readers and sequences."""
    main = fluid.Program()
    with fluid.program_guard(main, fluid.Program()), fluid.unique_name.guard():
        words = fluid.data("words", [None, 1], dtype="int64", lod_level=1)
        embedded = fluid.layers.embedding(words, [10, 4], is_sparse=True)
        pooled = fluid.layers.sequence_pool(embedded, "sum")
        count = fluid.layers.fill_constant([1], "int64", 0)
        limit = fluid.layers.fill_constant([1], "int64", 3)
        array = fluid.layers.array_write(pooled, count)
        condition = fluid.layers.less_than(count, limit)
        loop = fluid.layers.While(condition)
        with loop.block():
            last = fluid.layers.array_read(array, count)
            inner = fluid.layers.cond(condition, lambda: last * 2.0, lambda: last + 1.0)
            fluid.layers.increment(count, 1, True)
            fluid.layers.array_write(inner, count, array)
            fluid.layers.less_than(count, limit, cond=condition)
        result = fluid.layers.array_read(array, count)
        loss = fluid.layers.mean(fluid.layers.fc(result, 1))
        fluid.optimizer.SGD(0.1).minimize(loss)
        types = fluid.core.VarDesc.VarType
        main.global_block().create_var(name="raw", type=types.RAW)
        main.global_block().create_var(name="reader", type=types.READER, persistable=True)
        main.global_block().create_var(
            name="rows", type=types.SELECTED_ROWS, dtype="float32", shape=[4, 2]
        )
    path = os.path.join(TARGET, "blocks.pdmodel")
    with open(path, "wb") as file:
        file.write(main.desc.serialize_to_string())
    strip(path)


def old_tensors():
    """One file each: a tensor with two LoD levels, and the types of elements."""
    scope = fluid.Scope()
    exe = fluid.Executor(fluid.CPUPlace())
    main = fluid.Program()
    with fluid.scope_guard(scope), fluid.program_guard(main):
        block = main.global_block()
        arrays = [("sequences", np.arange(12, dtype="float32").reshape(6, 2))]
        for kind in ("bool", "int8", "uint8", "int16", "int32", "int64", "float16", "float64"):
            arrays.append((kind, (np.arange(6) % 5).astype(kind).reshape(2, 3)))
        for name, array in arrays:
            level = 2 if name == "sequences" else 0
            block.create_var(
                name=name, shape=array.shape, dtype=array.dtype, persistable=True, lod_level=level
            )
            scope.var(name).get_tensor().set(array, fluid.CPUPlace())
        scope.find_var("sequences").get_tensor().set_recursive_sequence_lengths([[2, 1], [1, 2, 3]])
        fluid.io.save_persistables(exe, TARGET, main, "tensors")


# --- 3.3.1 ----------------------------------------------------------------------------------------


def new_models(random):
    paddle.enable_static()
    main, startup = paddle.static.Program(), paddle.static.Program()
    with paddle.static.program_guard(main, startup):
        x = paddle.static.data("x", [None, 4], "float32")
        y = paddle.static.data("y", [None, 1], "int64")
        hidden = paddle.static.nn.fc(x, 3, activation="relu")
        hidden = paddle.nn.functional.dropout(hidden, 0.3)
        logits = paddle.static.nn.fc(hidden, 2)
        prediction = paddle.nn.functional.softmax(logits)
        picked = logits * 0.5 + 1.0
        loss = paddle.mean(paddle.nn.functional.cross_entropy(logits, y))
        paddle.optimizer.Adam(0.1).minimize(loss)
    exe = paddle.static.Executor(paddle.CPUPlace())
    exe.run(startup)
    values(main, paddle.static.global_scope(), random)
    data = random.rand(2, 4).astype("float32")
    paddle.static.save(main, os.path.join(TARGET, "state"))
    prefix = os.path.join(TARGET, "dense")
    paddle.static.save_inference_model(prefix, [x], [prediction, picked], exe, program=main)
    model, fed, fetched = paddle.static.load_inference_model(prefix, exe)
    results = exe.run(model, {fed[0]: data}, fetched)
    for name in ("state", "dense"):
        strip(os.path.join(TARGET, name + ".pdmodel"))
    return {"dense": {"feed": {"x": data.tolist()}, "fetch": [r.tolist() for r in results]}}


def main():
    """Write everything."""
    os.makedirs(TARGET, exist_ok=True)
    random = np.random.RandomState(7)
    if OLD:
        expected(old_models(random))
        old_state(random)
        old_blocks()
        old_tensors()
    else:
        expected(new_models(random))


if __name__ == "__main__":
    main()
