"""A trainer or a server of a net whose table (``is_distributed=True``) only servers have.

``table_role.py <role> <number> <endpoints> <rows of the table> <steps>``. A trainer prints the most
megabytes that it had.
"""

import re
import sys
from pathlib import Path

import numpy as np

from rowlock import fluid

role, number, endpoints, height, steps = sys.argv[1:6]
WIDTH, IDS = 16, (256, 8)

main, startup = fluid.Program(), fluid.Program()
with fluid.program_guard(main, startup):
    ids = fluid.data("ids", [None, IDS[1], 1], "int64")
    rows = fluid.layers.embedding(ids, [int(height), WIDTH], is_sparse=True, is_distributed=True)
    hidden = fluid.layers.reduce_sum(rows, 1)
    loss = fluid.layers.mean(fluid.layers.square(fluid.layers.fc(hidden, 1)))
    fluid.optimizer.SGD(0.1).minimize(loss)
transpiler = fluid.DistributeTranspiler()
transpiler.transpile(0, program=main, pservers=endpoints, trainers=1, startup_program=startup)
exe = fluid.Executor(fluid.CPUPlace())
if role == "server":
    program, initial = transpiler.get_pserver_programs(endpoints.split(",")[int(number)])
    exe.run(initial)
    exe.run(program)
else:
    program = transpiler.get_trainer_program()
    exe.run(startup)
    draw = np.random.default_rng(0)
    for _ in range(int(steps)):
        feed = {"ids": draw.integers(0, int(height), (*IDS, 1))}
        exe.run(program, feed=feed, fetch_list=[loss])
    # getrusage's maximum may be that of the process before exec
    status = Path("/proc/self/status").read_text()
    print("MB", int(re.search(r"VmHWM:\s+(\d+)", status)[1]) / 1024, flush=True)
    exe.close()
