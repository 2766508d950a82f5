"""A program that prints in Paddle 1.8.5 and Rowlock; read by Python 3.7, too.

Run with a Python 3.7 that has paddlepaddle==1.8.5 to make print.txt:  python print_cases.py > print.txt
The test leaves out the seconds that each text begins with.
"""

import numpy as np


def build(fluid):
    """Return the loss of a program that prints tensors of all types, and gradients."""
    layers = fluid.layers
    x = fluid.data("x", [None, 2], lod_level=1)
    x.stop_gradient = False
    y = layers.Print(x, message="hello", summarize=3)
    for name, dtype in (("b", "bool"), ("i", "int32"), ("j", "int64"), ("d", "float64")):
        layers.Print(fluid.data(name, [None], dtype), summarize=-1)
    layers.Print(x, print_tensor_name=False)
    layers.Print(x, print_tensor_shape=False, print_tensor_lod=False)
    z = layers.Print(y * 2.0, print_phase="backward", message="slope")
    z = layers.Print(layers.Print(z, print_phase="forward"), first_n=2, message="first")
    loss = layers.mean(z)
    fluid.backward.append_backward(loss)
    return loss


def feed(fluid):
    rows = np.array([[1, 2.5], [1e-7, 3e10], [np.nan, -np.inf]], "float32")
    return {
        "x": fluid.create_lod_tensor(rows, [[2, 1]], fluid.CPUPlace()),
        "b": np.array([True, False]),
        "i": np.array([1, -2], "int32"),
        "j": np.array([3, 10**15]),
        "d": np.array([1 / 3, 1e100]),
    }


def main(fluid):
    """Print in one step."""
    with fluid.program_guard(fluid.Program(), fluid.Program()), fluid.unique_name.guard():
        loss = build(fluid)
        program = fluid.default_main_program()
    fluid.Executor(fluid.CPUPlace()).run(program, feed=feed(fluid), fetch_list=[loss])


if __name__ == "__main__":
    from paddle import fluid

    main(fluid)
