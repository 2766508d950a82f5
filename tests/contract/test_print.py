"""Print: the text of Paddle 1.8.5, on one place, on threads and on Ray."""

from __future__ import annotations

import re
import subprocess
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import rowlock.fluid as fluid
import rowlock.static as static
from rowlock.strategies.errors import InvalidType, InvalidValue
from tests.programs import on_places
from tests.reference import print_cases

L = fluid.layers
PADDLES = Path(print_cases.__file__).with_name("print.txt").read_text()


pytestmark = pytest.mark.usefixtures("fresh_programs")


def timeless(text: str) -> str:
    return re.sub(r"^\d+\t", "0\t", text, flags=re.MULTILINE)


@pytest.mark.parametrize("device", ["cpu", "gpu"], indirect=True)
def test_the_text_is_paddles(device: str, threads: None, capfd: pytest.CaptureFixture[str]) -> None:
    print_cases.main(fluid)
    text = timeless(capfd.readouterr().out)
    assert text.replace("CUDAPlace(0)", "CPUPlace") == PADDLES


def run(steps: int, places: int = 1, rows: int = 4, **settings: Any) -> None:
    """Run steps of a program that prints x and its gradient."""
    x = fluid.data("x", [None, 1])
    x.stop_gradient = False
    loss = L.mean(L.Print(x, **settings))
    fluid.backward.append_backward(loss)
    program = (
        on_places(fluid.default_main_program(), places, loss)
        if places > 1
        else fluid.default_main_program()
    )
    exe = fluid.Executor(fluid.CPUPlace())
    for step in range(steps):
        feed = {"x": np.arange(rows + 2 * step, dtype="float32").reshape(-1, 1)}
        exe.run(program, feed=feed, fetch_list=[loss])


def test_it_counts_over_runs_and_shapes(capfd: pytest.CaptureFixture[str]) -> None:
    run(4, first_n=2)
    text = capfd.readouterr().out
    assert (text.count("Tensor[x]"), text.count("@GRAD]")) == (2, 2)


def test_the_backward_phase_alone(capfd: pytest.CaptureFixture[str]) -> None:
    run(3, print_phase="backward", first_n=1)
    text = capfd.readouterr().out
    assert (text.count("Tensor["), text.count("@GRAD]")) == (1, 1)


@pytest.mark.usefixtures("threads")
def test_each_place_prints_its_rows(capfd: pytest.CaptureFixture[str]) -> None:
    run(1, places=2, print_phase="forward")
    text = capfd.readouterr().out
    assert sorted(re.findall(r"data: (.*)", text)) == ["0,1,", "2,3,"]
    assert all(
        len(part.splitlines()) == 5 for part in re.split(r"^(?=\d+\t)", text, flags=re.M)[1:]
    )


def test_what_shapes_depend_on_is_printed_once_a_step(capfd: pytest.CaptureFixture[str]) -> None:
    x = fluid.data("x", [None], "int64")
    where = L.where(L.Print(L.greater_than(x, L.fill_constant([1], "int64", 0))))
    exe = fluid.Executor(fluid.CPUPlace())
    for _ in range(3):
        exe.run(feed={"x": np.array([1, 0, 2])}, fetch_list=[where])
    assert capfd.readouterr().out.count("data: 1,0,1,") == 3


def test_rounds_of_a_loop_count_together(capfd: pytest.CaptureFixture[str]) -> None:
    limit = L.fill_constant([1], "int64", 5)
    i = L.fill_constant([1], "int64", 0)
    (out,) = L.while_loop(
        lambda i: L.less_than(i, limit), lambda i: [L.Print(i, first_n=3) + 1], [i]
    )
    assert fluid.Executor(fluid.CPUPlace()).run(fetch_list=[out])[0][0] == 5
    assert re.findall(r"data: (\d),", capfd.readouterr().out) == ["0", "1", "2"]


def test_a_branch_for_no_rows_prints_nothing(capfd: pytest.CaptureFixture[str]) -> None:
    x = fluid.data("x", [None, 1])
    branches = L.IfElse(L.less_than(x, L.fill_constant([1], "float32", 0.0)))
    with branches.true_block():
        branches.output(L.Print(branches.input(x), message="below"))
    with branches.false_block():
        branches.output(L.Print(branches.input(x), message="above"))
    exe = fluid.Executor(fluid.CPUPlace())
    exe.run(feed={"x": np.ones((2, 1), "float32")}, fetch_list=branches())
    assert re.findall(r"above|below", capfd.readouterr().out) == ["above"]


@pytest.mark.parametrize(
    ("value", "printed"),
    [(3, "above 3, higher 3, slope 3,"), (1, "above 1, lower 1, slope 1,"), (-1, "below -1,")],
)
def test_only_the_branch_that_is_taken_prints(
    value: float, printed: str, capfd: pytest.CaptureFixture[str]
) -> None:
    """As Paddle 1.8.5 does, in branches within branches and for gradients, too."""
    x = fluid.data("x", [1])
    x.stop_gradient = False

    def shown(x: Any, message: str) -> Any:
        return L.Print(x, message=message, print_phase="forward")

    def above() -> Any:
        y = shown(x, "above")
        higher, lower = (lambda: shown(y, "higher") * 2.0), (lambda: shown(y, "lower") * 3.0)
        inner = L.cond(y > 2.0, higher, lower)
        return L.Print(inner, message="slope", print_phase="backward") * y

    out = L.cond(x > 0.0, above, lambda: shown(x, "below"))
    fluid.backward.append_backward(L.mean(out))
    exe = fluid.Executor(fluid.CPUPlace())
    for _ in range(2):
        exe.run(feed={"x": np.full(1, value, "float32")}, fetch_list=[out])
        texts = re.findall(r"\t(\w+)\tThe.*?data: (.*?)\n", capfd.readouterr().out, re.DOTALL)
        slopes = [text for text in texts if text[0] == "slope"]
        plain = [text for text in texts if text[0] != "slope"]
        assert " ".join(f"{name} {data}" for name, data in plain + slopes) == printed


def test_mistakes_are_named() -> None:
    x = fluid.data("x", [None, 1])
    with pytest.raises(InvalidType, match="input must be a Variable, got 3"):
        L.Print(3)
    with pytest.raises(InvalidValue, match="'forward', 'backward' or 'both', got 'never'"):
        L.Print(x, print_phase="never")


def test_the_form_of_2x(capfd: pytest.CaptureFixture[str]) -> None:
    out = static.Print(fluid.data("x", [1]), message="2.x", print_tensor_layout=False)
    static.Executor(static.cpu_places(1)[0]).run(
        static.default_main_program(), feed={"x": np.ones(1, "float32")}, fetch_list=[out]
    )
    assert "2.x\tThe place is:CPUPlace\nTensor[x]" in capfd.readouterr().out


@pytest.mark.slow
def test_ray_brings_the_text_to_the_driver() -> None:
    code = (
        "import contextlib, io, rowlock, rowlock.fluid as fluid\n"
        "from tests.conftest import eventually\n"
        "from tests.contract.test_print import run\n"
        "with rowlock.cluster(launcher='ray'), contextlib.redirect_stdout(io.StringIO()) as text:\n"
        "    run(1, places=2, print_phase='forward')\n"
        "    eventually(lambda: text.getvalue().count('data: ') == 2)\n"
        "print(text.getvalue())\n"
    )
    process = subprocess.run(
        [sys.executable, "-c", code], capture_output=True, text=True, timeout=180, check=True
    )
    assert sorted(re.findall(r"data: (.*?),(?:\x1b.*)?$", process.stdout, re.M)) == ["0,1", "2,3"]
