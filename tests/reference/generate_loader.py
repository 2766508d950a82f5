"""Make loader.json with Paddle 3.3.1 in static mode: what ``paddle.io`` gives in loader_cases.py.

Run with a Python that has paddlepaddle==3.3.1:  python generate_loader.py

{"outcomes": {use: batches}, "refused": {use: class of the error}}
"""

import os

os.environ["FLAGS_enable_pir_api"] = "0"

import compact_json
import loader_cases
import paddle

HERE = os.path.dirname(os.path.abspath(__file__))


def variables():
    """Return an image and a label."""
    return paddle.static.data("image", [-1, 2]), paddle.static.data("label", [-1], "int64")


paddle.enable_static()
with paddle.static.program_guard(paddle.static.Program()):
    outcomes = loader_cases.outcomes(
        paddle.io, lambda count: [paddle.CPUPlace()] * count, variables
    )
    record = {"outcomes": outcomes, "refused": loader_cases.refused(paddle.io)}
compact_json.write(os.path.join(HERE, "loader.json"), record, 2)
