"""Make file_datasets.json with Paddle 1.8.5: what training from files prints and learns, what generators write.

Run with a Python that has paddlepaddle==1.8.5:  python generate_file_datasets.py

{"trained": {kind: {command: {"desc", "values", "printed"}}}, "written": {generator: {"stdin", "memory"}}}
"""

import contextlib
import io
import os
import sys
import tempfile

import compact_json
import file_dataset_cases as cases
import paddle.fluid as fluid
import paddle.fluid.incubate.data_generator as data_generator

HERE = os.path.dirname(os.path.abspath(__file__))


@contextlib.contextmanager
def printed_to(path):
    """Send what is written to stdout, by C++ as well, into a file."""
    sys.stdout.flush()
    before = os.dup(1)
    with open(path, "w") as out:
        os.dup2(out.fileno(), 1)
        try:
            yield
        finally:
            sys.stdout.flush()
            os.dup2(before, 1)
            os.close(before)


def trained(kind, command):
    """Return what one training gives."""
    with tempfile.TemporaryDirectory() as folder:
        path = os.path.join(folder, "printed")
        with printed_to(path):
            outcome = cases.train(fluid, kind, command, folder)
        with open(path) as printed:
            outcome["printed"] = printed.read()
    return outcome


def written(kind, how):
    """Return what a generator writes."""
    generator = cases.generators(data_generator)[kind]()
    sys.stdin = io.StringIO(cases.LINES)
    out = io.StringIO()
    with contextlib.redirect_stdout(out):
        generator.run_from_stdin() if how == "stdin" else generator.run_from_memory()
    return out.getvalue()


outcomes = {
    "trained": {k: {c: trained(k, c) for c in cases.COMMANDS} for k in cases.KINDS},
    "written": {
        kind: {how: written(kind, how) for how in ("stdin", "memory")}
        for kind in ("Numbers", "Doubled", "Words")
    },
}
compact_json.write(os.path.join(HERE, "file_datasets.json"), outcomes, 4)
