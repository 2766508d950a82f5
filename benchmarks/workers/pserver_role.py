"""A trainer or a server of a dense net of 51 MB; for Rowlock, and for Paddle 1.8.5 on Python 3.7.

``pserver_role.py <library> <role> <number> <endpoints> <trainers> <steps>``. A trainer prints steps a second.
"""

import sys
import time

import numpy as np

library, role, number, endpoints, trainers, steps = sys.argv[1:7]
if library == "rowlock":
    from rowlock import fluid
else:
    from paddle import fluid

WIDTH, LAYERS, ROWS, WARM = 1600, 5, 4, 3

main, startup = fluid.Program(), fluid.Program()
with fluid.program_guard(main, startup):
    x = fluid.data("x", [None, WIDTH])
    top = x
    for _ in range(LAYERS):
        top = fluid.layers.fc(top, WIDTH, bias_attr=False)
    loss = fluid.layers.mean(top)
    fluid.optimizer.SGD(1e-4).minimize(loss)
transpiler = fluid.DistributeTranspiler()
transpiler.transpile(
    int(number) if role == "trainer" else 0,
    program=main,
    pservers=endpoints,
    trainers=int(trainers),
    startup_program=startup,
)
exe = fluid.Executor(fluid.CPUPlace())
if role == "server":
    own = endpoints.split(",")[int(number)]
    program, initial = transpiler.get_pserver_programs(own)
    exe.run(initial)
    exe.run(program)
else:
    program = transpiler.get_trainer_program()
    exe.run(startup)
    feed = {"x": np.random.RandomState(int(number)).rand(ROWS, WIDTH).astype("float32")}
    for step in range(WARM + int(steps)):
        if step == WARM:
            began = time.time()
        exe.run(program, feed=feed, fetch_list=[loss])
    print("steps/s %.3f" % (int(steps) / (time.time() - began)), flush=True)
    exe.close()
