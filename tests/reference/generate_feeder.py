"""Make feeder.json with Paddle 1.8.5: what DataFeeder makes of the samples of feeder_cases.py.

Run with a Python that has paddlepaddle==1.8.5:  python generate_feeder.py

{case: [dtype, shape, lengths of sequences, values]}
"""

import os

import compact_json
import feeder_cases
import numpy as np
import paddle.fluid as fluid

HERE = os.path.dirname(os.path.abspath(__file__))

record = {}
for name, (shape, dtype, level, samples) in feeder_cases.cases().items():
    with fluid.program_guard(fluid.Program()):
        x = fluid.data("x", shape, dtype, lod_level=level)
        tensor = fluid.DataFeeder([x], fluid.CPUPlace()).feed([(sample,) for sample in samples])[
            "x"
        ]
        array = np.array(tensor)
        record[name] = [
            str(array.dtype),
            list(array.shape),
            tensor.recursive_sequence_lengths(),
            array.ravel().tolist(),
        ]
compact_json.write(os.path.join(HERE, "feeder.json"), record, 1)
