"""JSON that diffs well: containers are broken into lines down to a depth, then stay on one line."""

import json


def dumps(value, depth, indent=0):
    """Text of `value`; levels nested deeper than `depth` are written on one line each."""
    if depth == 0 or not isinstance(value, (dict, list)) or not value:
        return json.dumps(value)
    inside = " " * (indent + 1)
    if isinstance(value, dict):
        lines = [
            inside + json.dumps(key) + ": " + dumps(item, depth - 1, indent + 1)
            for key, item in value.items()
        ]
        return "{\n" + ",\n".join(lines) + "\n" + " " * indent + "}"
    lines = [inside + dumps(item, depth - 1, indent + 1) for item in value]
    return "[\n" + ",\n".join(lines) + "\n" + " " * indent + "]"


def write(path, value, depth):
    """Write `value` to `path`, with a newline at the end."""
    with open(path, "w") as out:
        out.write(dumps(value, depth) + "\n")
