"""Nets and settings that DistributeTranspiler rewrites, for Paddle and for Rowlock alike; for Python 3.7, too.

Run where Paddle 1.8.5 is installed to make transpiled.json:  python transpiled_nets.py

transpiled.json  {"ops": [op], "programs": {case: {program: [block]}}, "sources": {net: [main, startup]}}. A block is [number, parent, variables, ops]:
a variable [name, type, persistable, shape], an op its position in "ops"; an op is [type, inputs, outputs,
attributes]. Names that are drawn (``__control_var@...``) are numbered in the order of their appearance.
"sources" are programs before they are rewritten, as files hold them (base64 of zlib): Rowlock builds these otherwise.
"""

import base64
import importlib
import json
import os
import zlib

ENDPOINTS = ["127.0.0.1:6174", "127.0.0.1:6175"]
# Attributes that say where and by what an op is computed, not what.
IGNORED = {
    *("op_callstack", "op_device", "op_namescope", "use_mkldnn", "use_cudnn", "use_quantizer"),
    *("mkldnn_data_type", "x_data_format", "y_data_format", "workspace_size_MB", "data_format", "str_value"),
    *("rpc_get_thread_num", "rpc_send_thread_num", "rpc_prefetch_thread_num", "exhaustive_search"),
}


def regression(fluid, optimizer):
    x, y = data(fluid, "x", [20000]), data(fluid, "y", [1])
    loss = fluid.layers.square_error_cost(fluid.layers.fc(x, 1), y)
    optimizer().minimize(fluid.layers.mean(loss))


def mlp(fluid, optimizer):
    x, label = data(fluid, "x", [784]), data(fluid, "label", [1], "int64")
    hidden = fluid.layers.fc(x, 64, act="relu")
    hidden = fluid.layers.fc(hidden, 64, act="tanh")
    finish(fluid, fluid.layers.fc(hidden, 10, act="softmax"), label, optimizer)


def lenet(fluid, optimizer):
    image, label = data(fluid, "image", [1, 28, 28]), data(fluid, "label", [1], "int64")
    pool = {"pool_size": 2, "pool_stride": 2, "act": "relu"}
    hidden = fluid.nets.simple_img_conv_pool(image, 20, 5, **pool)
    hidden = fluid.nets.simple_img_conv_pool(hidden, 50, 5, **pool)
    finish(fluid, fluid.layers.fc(hidden, 10, act="softmax"), label, optimizer)


def word2vec(fluid, optimizer):
    words = [data(fluid, "word_%d" % k, [1], "int64") for k in range(4)]
    label = data(fluid, "next", [1], "int64")
    rows = [fluid.layers.embedding(w, [2073, 32], is_sparse=True, param_attr="shared_w") for w in words]
    hidden = fluid.layers.fc(fluid.layers.concat(rows, axis=1), 256, act="sigmoid")
    finish(fluid, fluid.layers.fc(hidden, 2073, act="softmax"), label, optimizer)


def ctr(fluid, optimizer):
    dense, label = data(fluid, "dense", [13]), data(fluid, "label", [1], "int64")
    fields = [data(fluid, "field_%d" % k, [1], "int64") for k in range(3)]
    rows = [
        fluid.layers.embedding(
            field,
            [5000 + k, 8],
            is_sparse=True,
            param_attr=fluid.ParamAttr("table_%d" % k, initializer=fluid.initializer.Uniform()),
        )
        for k, field in enumerate(fields)
    ]
    hidden = fluid.layers.concat(rows + [dense], axis=1)
    for _ in range(2):
        hidden = fluid.layers.fc(hidden, 400, act="relu")
    finish(fluid, fluid.layers.fc(hidden, 2, act="softmax"), label, optimizer)


def text_cnn(fluid, optimizer):
    words = fluid.layers.data("words", [1], dtype="int64", lod_level=1)
    label = data(fluid, "label", [1], "int64")
    rows = fluid.layers.embedding(words, [3000, 64], is_sparse=False)
    convs = [
        fluid.nets.sequence_conv_pool(rows, 96, size, act="tanh", pool_type="sqrt") for size in (3, 4)
    ]
    finish(fluid, fluid.layers.fc(convs, 2, act="softmax"), label, optimizer)


def residual(fluid, optimizer):
    image, label = data(fluid, "image", [3, 16, 16]), data(fluid, "label", [1], "int64")

    def conv(x, filters, act=None):
        x = fluid.layers.conv2d(x, filters, 3, padding=1, bias_attr=False)
        return fluid.layers.batch_norm(x, act=act)

    hidden = conv(image, 32, "relu")
    short = hidden
    hidden = conv(conv(hidden, 32, "relu"), 32)
    hidden = fluid.layers.elementwise_add(short, hidden, act="relu")
    hidden = fluid.layers.pool2d(hidden, pool_type="avg", global_pooling=True)
    finish(fluid, fluid.layers.fc(hidden, 10, act="softmax"), label, optimizer)


def data(fluid, name, shape, dtype="float32"):
    return fluid.layers.data(name, shape, dtype=dtype)


def finish(fluid, prediction, label, optimizer):
    loss = fluid.layers.mean(fluid.layers.cross_entropy(prediction, label))
    optimizer().minimize(loss)


def sgd(fluid):
    return fluid.optimizer.SGD(0.01)


def scheduled(fluid):
    rate = fluid.layers.piecewise_decay([100, 200], [0.1, 0.01, 0.001])
    return fluid.optimizer.Momentum(rate, 0.9)


def exponential(fluid):
    return fluid.optimizer.SGD(fluid.layers.exponential_decay(0.1, 10, 0.5))


def clipped(fluid):
    fluid.clip.set_gradient_clip(fluid.clip.GradientClipByGlobalNorm(1.0))
    return fluid.optimizer.Adam(0.001, regularization=fluid.regularizer.L2Decay(1e-4))


def clipped_2(fluid):
    clip = fluid.clip.GradientClipByGlobalNorm(1.0)
    return fluid.optimizer.Adam(
        0.001, regularization=fluid.regularizer.L2Decay(1e-4), grad_clip=clip
    )


def adamax(fluid):
    return fluid.optimizer.Adamax(0.001)


def adagrad(fluid):
    return fluid.optimizer.Adagrad(0.01)


def decayed_adagrad(fluid):
    return fluid.optimizer.DecayedAdagrad(0.01)


def rmsprop(fluid):
    return fluid.optimizer.RMSProp(0.01, momentum=0.9)


def lars(fluid):
    return fluid.optimizer.LarsMomentum(0.01, 0.9)


def ftrl(fluid):
    return fluid.optimizer.Ftrl(0.01)


def decayed_sgd(fluid):
    return fluid.optimizer.SGD(0.01, regularization=fluid.regularizer.L1Decay(1e-4))


NETS = {
    "regression": (regression, sgd),
    "mlp": (mlp, scheduled),
    "adam": (mlp, clipped),
    "adam_2": (mlp, clipped_2),
    "lenet": (lenet, adamax),
    "word2vec": (word2vec, sgd),
    "ctr": (ctr, adagrad),
    "text_cnn": (text_cnn, decayed_adagrad),
    "residual": (residual, rmsprop),
    "lars": (residual, lars),
    "ftrl": (mlp, ftrl),
    "exponential": (mlp, exponential),
    "l1": (regression, decayed_sgd),
}
# Rowlock's schedules and clips of these have other operators, so that it rewrites what Paddle built.
FROM_FILES = ("mlp", "adam")
EIGHT = ("regression", "mlp", "adam", "lenet", "word2vec", "ctr", "text_cnn", "residual")


class Case:
    """A net, what the config says, and how transpile is called."""

    def __init__(self, net, config=None, **call):
        self.net, self.config = net, config or {}
        self.call = dict({"trainer_id": 0, "trainers": 2, "pservers": ",".join(ENDPOINTS)}, **call)


ASYNC = {"sync_mode": False}
CASES = {}
for _net in EIGHT:
    for _slices in (True, False):
        for _sync in (True, False):
            _name = "%s%s%s" % (_net, "" if _slices else " whole", "" if _sync else " async")
            CASES[_name] = Case(_net, {"slice_var_up": _slices, "sync_mode": _sync}, sync_mode=_sync)
CASES.update(
    {
        "regression trainer 1": Case("regression", trainer_id=1),
        "mlp trainer 1 async": Case("mlp", ASYNC, trainer_id=1, sync_mode=False),
        "adam 2": Case("adam_2"),
        "lars": Case("lars"),
        "ftrl": Case("ftrl"),
        "l1": Case("l1"),
        "exponential": Case("exponential"),
        "exponential async": Case("exponential", ASYNC, sync_mode=False),
        "regression alone async": Case("regression", ASYNC, sync_mode=False, trainers=1),
        "regression split late": Case(
            "regression", dict(ASYNC, runtime_split_send_recv=True), sync_mode=False
        ),
        "word2vec split late": Case(
            "word2vec", dict(ASYNC, runtime_split_send_recv=True), sync_mode=False
        ),
        "ctr split late": Case("ctr", dict(ASYNC, runtime_split_send_recv=True), sync_mode=False),
        "mlp half async": Case(
            "mlp", dict(ASYNC, runtime_split_send_recv=True, half_async=True), sync_mode=False
        ),
        "regression delay": Case("regression", dict(ASYNC, enable_dc_asgd=True), sync_mode=False),
        "geo": Case("ctr", dict(ASYNC, geo_sgd_mode=True), sync_mode=False),
        "geo dense": Case("mlp", dict(ASYNC, geo_sgd_mode=True), sync_mode=False),
        "lenet blocks": Case("lenet", {"min_block_size": 9000}, pservers="a:1,b:2,c:3"),
    }
)


TRAINERS = "127.0.0.1:6170,127.0.0.1:6171,127.0.0.1:6172,127.0.0.1:6173"
for _mode, _rings in (("grad_allreduce", 1), ("grad_allreduce", 2), ("local_sgd", 1), ("local_sgd", 3)):
    for _net in ("residual", "lenet"):
        CASES["%s %s %d" % (_net, _mode, _rings)] = Case(
            _net,
            {
                "mode": "collective",
                "collective_mode": _mode,
                "nccl_comm_num": _rings,
                "wait_port": False,
            },
            trainers=TRAINERS,
            trainer_id=1,
            current_endpoint="127.0.0.1:6171",
        )
CASES["nccl2"] = Case(
    "mlp",
    {"mode": "nccl2", "wait_port": False},
    trainers=TRAINERS,
    current_endpoint="127.0.0.1:6170",
)
CASES["nccl2 of hosts"] = Case(
    "mlp",
    {
        "mode": "nccl2",
        "wait_port": False,
        "nccl_comm_num": 2,
        "use_hierarchical_allreduce": True,
        "hierarchical_allreduce_inter_nranks": 2,
    },
    trainers=TRAINERS,
    current_endpoint="127.0.0.1:6170",
)


def built(fluid, net):
    """Return the main and the startup program of a net."""
    main, startup = fluid.Program(), fluid.Program()
    build, optimizer = NETS[net]
    with fluid.program_guard(main, startup), fluid.unique_name.guard():
        build(fluid, lambda: optimizer(fluid))
    return main, startup


def transpiled(fluid, case, main, startup):
    """Return the programs that a case makes of two, by name."""
    config = fluid.DistributeTranspilerConfig()
    for name, value in case.config.items():
        setattr(config, name, value)
    kind = fluid.DistributeTranspiler
    if config.geo_sgd_mode:
        path = fluid.__name__ + ".transpiler.geo_sgd_transpiler"
        kind = importlib.import_module(path).GeoSgdTranspiler
    t = kind(config)
    with fluid.unique_name.guard():
        t.transpile(program=main, startup_program=startup, **case.call)
    if case.config.get("mode"):
        return {"trainer": main, "startup": startup}
    programs = {}
    for endpoint in case.call["pservers"].split(","):
        server, server_startup = t.get_pserver_programs(endpoint)
        programs["server " + endpoint] = server
        programs["startup " + endpoint] = server_startup
    programs["trainer"] = t.get_trainer_program(wait_port=False)
    programs["startup"] = startup
    return programs


def described(program):
    """Return a program as plain data, with the ops in place."""
    drawn = {}

    def plain(name):
        if name.startswith("__control_var@"):
            return drawn.setdefault(name, "__control_var@%d" % len(drawn))
        return name

    def value(attr):
        if isinstance(attr, float):
            return float("%.6g" % attr)
        if isinstance(attr, str):
            return plain(attr)
        if hasattr(attr, "idx") or hasattr(attr, "id") and not isinstance(attr, int):
            return ["block", attr.idx if hasattr(attr, "idx") else attr.id]
        if isinstance(attr, (list, tuple)):
            return [value(item) for item in attr]
        return attr

    def slots(names, of):
        return {slot: [plain(n) for n in of(slot)] for slot in sorted(names) if of(slot)}

    blocks = []
    for block in program.blocks:
        ops = []
        for op in block.ops:
            attrs = {n: value(op.attr(n)) for n in sorted(op.attr_names) if n not in IGNORED}
            if op.type == "listen_and_serv":
                attrs["grad_to_block_id"].sort()
            ops.append([op.type, slots(op.input_names, op.input), slots(op.output_names, op.output), attrs])
        for position, op in reversed(getattr(block, "noted", [])):
            ops.insert(position, op)
        variables = sorted(
            [plain(v.name), int(v.type), bool(v.persistable), shape_of(v)] for v in block.vars.values()
        )
        blocks.append([block.idx, block.parent_idx, variables, ops])
    return blocks


def shape_of(variable):
    try:
        return list(variable.shape or ())
    except Exception:  # of a type that has none
        return []


ON_GPUS = {"gen_nccl_id", "c_gen_nccl_id"}  # a build of Paddle for CPUs lacks these ops


def record_ops_of_gpus(fluid):
    """Have Block.append_op note, in place of ops that a build for CPUs lacks, their slots and attributes."""
    append_op = fluid.framework.Block.append_op

    def stand_in(self, type=None, inputs=None, outputs=None, attrs=None, **other):
        if type not in ON_GPUS:
            return append_op(self, type=type, inputs=inputs, outputs=outputs, attrs=attrs, **other)
        attrs = {name: int(v) if name == "op_role" else v for name, v in (attrs or {}).items()}
        attrs = dict({"op_role": 0}, **attrs)
        names = {slot: [getattr(v, "name", v)] for slot, v in outputs.items()}
        self.noted = getattr(self, "noted", []) + [[len(self.ops), [type, {}, names, attrs]]]

    fluid.framework.Block.append_op = stand_in


def packed(program):
    """Return the bytes of a program as text, without the lines that built it."""
    for block in program.blocks:
        for op in block.ops:
            if op.has_attr("op_callstack"):
                op.desc.remove_attr("op_callstack")
    return base64.b64encode(zlib.compress(program.desc.serialize_to_string(), 9)).decode()


def main():
    from paddle import fluid

    record_ops_of_gpus(fluid)
    ops, programs, sources = {}, {}, {}
    for name, case in CASES.items():
        programs[name] = {}
        try:
            by_kind = transpiled(fluid, case, *built(fluid, case.net))
        except Exception as error:  # Paddle cannot; differences.md says what Rowlock does
            programs[name] = {"error": type(error).__name__}
            print(name, type(error), programs[name])
            continue
        for kind, program in by_kind.items():
            blocks = described(program)
            for block in blocks:
                block[3] = [ops.setdefault(json.dumps(op), len(ops)) for op in block[3]]
            programs[name][kind] = blocks
    for net in FROM_FILES:
        sources[net] = [packed(program) for program in built(fluid, net)]
    path = os.path.join(os.path.dirname(os.path.abspath(__file__)), "transpiled.json")
    with open(path, "w") as file:
        file.write('{"ops": [\n%s\n],\n"programs": {\n' % ",\n".join(ops))
        lines = ("%s: %s" % (json.dumps(n), json.dumps(p)) for n, p in programs.items())
        file.write('%s\n},\n"sources": %s}\n' % (",\n".join(lines), json.dumps(sources)))


if __name__ == "__main__":
    main()
