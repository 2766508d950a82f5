"""Make graph/program/formats/paddle_ops.json with Paddle 1.8.5: what an op of its programs is written with.

Run with a Python 3.7 that has paddlepaddle==1.8.5 and protobuf<3.20, from the top of the repository:

    python tests/reference/generate_op_table.py graph/program/formats/paddle_ops.json

The file holds {"ops": {op type: {"in": [input slots], "attrs": {name: [kind, default]}}}, "compatible": bytes}:
attributes in the order of their declaration, their kind by number (framework.proto AttrType), and what
Paddle fills in for one that is not given (null: it must be given). The five attributes that every op has
(op_role, ...) are left out. "compatible" is the field op_compatible_map that save_inference_model writes, in base64.
"""

import base64
import json
import re
import sys

from paddle import fluid
from paddle.fluid import core
from paddle.fluid.proto import framework_pb2 as pb

STAMPED = ("op_role", "op_role_var", "op_namescope", "op_callstack", "op_device")
SOME = {0: 1, 1: 1.0, 2: "", 3: [1], 4: [1.0], 5: [""], 6: False, 7: [False], 9: 1, 11: [1]}
# Values that a check of the op refuses to do without.
ACCEPTED = {
    "variances": [0.1, 0.1, 0.2, 0.2],
    "win_size": 2,
    "pooling_type": "max",
    "functor_list": ["elementwise_add", "relu"],
    "dtype": 5,
}


def filled(proto):
    """Return an op's attributes as Paddle fills them in, and the names of those it cannot fill in."""
    program = fluid.Program()
    op = program.global_block().desc.append_op()
    op.set_type(proto.type)
    kinds = {attr.name: attr.type for attr in proto.attrs}
    missing = []
    for _ in range(len(kinds) + 1):
        try:
            op.check_attrs()
            break
        except Exception as error:  # Paddle names the attribute that is missing
            message = str(error).rsplit("Error Message Summary", 1)[-1]
            names = [
                name for name in kinds if name not in missing and re.search(r"\b%s\b" % name, message)
            ]
            names = names or [name for name in ACCEPTED if name in kinds and name not in missing]
            if not names or kinds[names[0]] not in SOME:
                print(
                    "no defaults:",
                    proto.type,
                    message[-150:].strip().replace("\n", " "),
                    file=sys.stderr,
                )
                return {}, list(kinds)
            name = names[0]
            missing.append(name)
            op._set_attr(name, ACCEPTED.get(name, SOME[kinds[name]]))
    return {name: op.attr(name) for name in op.attr_names() if kinds.get(name) != 8}, missing


def compatible():
    """Return the serialized op_compatible_map."""
    program = fluid.Program()
    core.save_op_compatible_info(program.desc)
    message = pb.ProgramDesc.FromString(program.desc.serialize_to_string())
    return message.op_compatible_map.SerializeToString()


def main(target):
    """Write the table."""
    table = {}
    for serialized in core.get_all_op_protos():
        proto = pb.OpProto.FromString(serialized)
        values, missing = filled(proto)
        table[proto.type] = {
            "in": [slot.name for slot in proto.inputs],
            "attrs": {
                attr.name: [attr.type, None if attr.name in missing else values.get(attr.name)]
                for attr in proto.attrs
                if attr.name not in STAMPED
            },
        }
    lines = [
        "  %s: %s" % (json.dumps(name), json.dumps(table[name], separators=(",", ":")))
        for name in sorted(table)
    ]
    with open(target, "w") as file:
        file.write(
            '{"compatible": %s,\n "ops": {\n%s\n}}\n'
            % (json.dumps(base64.b64encode(compatible()).decode()), ",\n".join(lines))
        )


if __name__ == "__main__":
    main(sys.argv[1])
