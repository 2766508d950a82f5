"""Programs import from the module paths that Paddle has, under Paddle's own name if they wish."""

from __future__ import annotations

import importlib
import os
import subprocess
import sys
import traceback
from pathlib import Path

import pytest

import rowlock.fluid as fluid
from rowlock.names import paddle_names
from rowlock.strategies.errors import Unsupported
from tests.programs import own_programs

PATHS = [
    "fluid.average",
    "fluid.backward",
    "fluid.clip",
    "fluid.compiler",
    "fluid.contrib",
    "fluid.core",
    "fluid.data_feeder",
    "fluid.dataset",
    "fluid.contrib.mixed_precision.decorator",
    "fluid.contrib.mixed_precision.fp16_lists",
    "fluid.default_scope_funcs",
    "fluid.dygraph",
    "fluid.evaluator",
    "fluid.executor",
    "fluid.framework",
    "fluid.incubate",
    "fluid.initializer",
    "fluid.input",
    "fluid.install_check",
    "fluid.io",
    "fluid.layer_helper",
    "fluid.layer_helper_base",
    "fluid.layers",
    "fluid.lod_tensor",
    "fluid.log_helper",
    "fluid.metrics",
    "fluid.nets",
    "fluid.op",
    "fluid.optimizer",
    "fluid.param_attr",
    "fluid.reader",
    "fluid.regularizer",
    "fluid.transpiler",
    "fluid.unique_name",
    "fluid.layers.control_flow",
    "fluid.layers.detection",
    "fluid.layers.device",
    "fluid.layers.io",
    "fluid.layers.learning_rate_scheduler",
    "fluid.layers.loss",
    "fluid.layers.math_op_patch",
    "fluid.layers.metric_op",
    "fluid.layers.nn",
    "fluid.layers.ops",
    "fluid.layers.rnn",
    "fluid.layers.sequence_lod",
    "fluid.layers.tensor",
    "fluid.layers.utils",
    "inference",
    "utils.plot",
]


@pytest.fixture(autouse=True)
def unaliased(monkeypatch: pytest.MonkeyPatch) -> None:
    """Modules are told by Rowlock's names, also where another test has imported ``rowlock.alias``."""
    monkeypatch.delitem(sys.modules, "paddle", raising=False)


@pytest.mark.parametrize("path", PATHS)
def test_a_module_has_the_names_that_it_lists_and_no_others(path: str) -> None:
    module = importlib.import_module(f"rowlock.{path}")
    assert dir(module) == sorted(module.__all__)
    for name in module.__all__:
        assert getattr(module, name) is not None, name
    with pytest.raises(AttributeError, match=f"module 'rowlock.{path}' has no attribute 'fcx'"):
        _ = module.fcx
    for name in paddle_names().get(path, frozenset()) - set(module.__all__):
        if f"rowlock.{path}.{name}" in sys.modules:
            continue  # a module whose function of the same name is not built
        with pytest.raises(AttributeError, match=r"is Paddle's, and Rowlock has not built it"):
            getattr(module, name)


def test_modules_of_mixed_precision_come_with_it() -> None:
    """As Paddle imports them: programs go through the attribute."""
    parts = fluid.contrib.mixed_precision
    assert parts.decorator.decorate is parts.decorate
    assert parts.fp16_lists.AutoMixedPrecisionLists is parts.AutoMixedPrecisionLists


def test_a_name_that_is_nearly_right() -> None:
    with pytest.raises(AttributeError, match="Did you mean 'batch_norm'") as caught:
        _ = fluid.layers.batchnorm
    said = "".join(traceback.format_exception(caught.value))
    assert said.count("Did you mean") == 1  # Python adds none of its own


def test_an_import_of_what_is_not_built_says_what_to_use() -> None:
    with pytest.raises(ImportError, match=r"distributed\.spawn is Paddle's.*distributed\.launch"):
        from rowlock.distributed import spawn  # noqa: F401
    with pytest.raises(ModuleNotFoundError, match=r"fluid\.proto is Paddle's.*parse_from_string"):
        importlib.import_module("rowlock.fluid.proto")
    with pytest.raises(ImportError, match=r"unbind is Paddle's"):
        from rowlock.fluid.layers import unbind  # noqa: F401
    with pytest.raises(ImportError, match=r"linalg\.eig is Paddle's, and Rowlock has not built it"):
        from rowlock.linalg import eig  # noqa: F401 - of a module that is no folder
    with pytest.raises(ImportError, match=r"'rowlock.fluid' has no attribute 'nothing'"):
        from rowlock.fluid import nothing  # noqa: F401
    with pytest.raises(ImportError, match=r"has no attribute 'Cauchi'. Did you mean 'Cauchy'"):
        from rowlock.distribution import Cauchi  # noqa: F401
    with pytest.raises(ImportError, match=r"No module named 'rowlock.distribution.Cauchy'"):
        importlib.import_module("rowlock.distribution.Cauchy")
    with pytest.raises(
        ModuleNotFoundError, match=r"module 'rowlock.fluid' has no attribute 'nothing'"
    ):
        importlib.import_module("rowlock.fluid.nothing")


SCRIPT = """
import sys
import traceback
from paddle.fluid.layers import fc
from paddle.fluid.param_attr import ParamAttr
import paddle.fluid.layers.nn as nn
import paddle.fluid as fluid
import paddle, rowlock
assert paddle is rowlock and nn.fc is fc and fluid.__spec__.name == "rowlock.fluid"
assert sys.modules["paddle.fluid"] is sys.modules["rowlock.fluid"]
try:
    import paddle.fluid.nothing
except ImportError as error:
    print(error)
try:
    from paddle.fluid.layers import fcx
except ImportError as error:
    print(error)
try:
    paddle.nothere
except AttributeError as error:
    print(error)
try:
    import paddle.fluid.proto
except ImportError as error:
    print(error)
assert paddle.__version__ == paddle.version.full_version == "1.8.5"
release = paddle.version
assert [release.major, release.minor, release.patch, release.rc] == ["1", "8", "5", "0"]
paddle.version.show()
print(sys.argv[1:], __name__)
"""


def test_a_script_runs_unchanged_under_the_alias(tmp_path: Path) -> None:
    script = tmp_path / "program.py"
    script.write_text(SCRIPT)
    command = [sys.executable, "-m", "rowlock.alias", str(script), "--epochs", "3"]
    process = subprocess.run(command, capture_output=True, text=True, timeout=240)
    assert process.returncode == 0, process.stderr
    assert "['--epochs', '3'] __main__" in process.stdout
    assert "module 'paddle.fluid' has no attribute 'nothing'" in process.stdout
    assert "module 'paddle.fluid.layers' has no attribute 'fcx'. Did you" in process.stdout
    assert "module 'paddle' has no attribute 'nothere'" in process.stdout
    assert "Program.parse_from_string reads it." in process.stdout
    assert "Rowlock 0.1.0, with the API of PaddlePaddle 1.8.5" in process.stdout


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (["absent.py"], "there is no file 'absent.py' (looked for from "),
        (["."], "'.' is a folder without __main__.py."),
        (["-m", "absent.module"], "there is no module 'absent.module'."),
        (["-m", "paddle.distributed.absent"], "'paddle.distributed' has no attribute 'absent'."),
        (
            ["-m", "paddle.distributed.fleet.launch"],
            "rowlock.distributed.launch starts workers, and",
        ),
        (["-m", "paddle.nothere"], "module 'paddle' has no attribute 'nothere'."),
    ],
)
def test_what_the_alias_cannot_run_is_told_without_a_traceback(
    arguments: list[str], said: str, tmp_path: Path
) -> None:
    process = subprocess.run(
        [sys.executable, "-m", "rowlock.alias", *arguments],
        cwd=tmp_path,
        env={**os.environ, "PYTHONPATH": str(Path(__file__).parents[2])},
        capture_output=True,
        text=True,
        timeout=240,
    )
    assert process.returncode == 2 and said in process.stderr
    assert "Traceback" not in process.stderr


def test_the_version_of_the_interface() -> None:
    fluid.require_version("1.5")
    fluid.require_version("1.5", "1.9")
    with pytest.raises(Unsupported, match=r"at least 2\.0; rowlock\.fluid has the API of 1\.8\.5"):
        fluid.require_version("2.0")
    with pytest.raises(TypeError, match="min_version must be a str"):
        fluid.require_version(1.5)  # type: ignore[arg-type]
    with pytest.raises(ValueError, match="numbers with dots between"):
        fluid.require_version("abc")


def test_a_layer_that_somebody_wrote_with_the_helper() -> None:
    from rowlock.fluid.layer_helper import LayerHelper

    def scaled(input: fluid.Variable, size: int, param_attr: object = None, act: str = "relu"):
        helper = LayerHelper("scaled", **locals())
        dtype = helper.input_dtype()
        weight = helper.create_parameter(helper.param_attr, [8, size], dtype)
        out = helper.create_variable_for_type_inference(dtype)
        helper.append_op(type="mul", inputs={"X": input, "Y": weight}, outputs={"Out": out})
        return helper.append_activation(helper.append_bias_op(out))

    with own_programs() as (main, _):
        out = scaled(fluid.data("x", [None, 8]), 4)
    assert [op.type for op in main.global_block().ops] == ["mul", "elementwise_add", "relu"]
    assert out.shape == (-1, 4)
    assert [p.name for p in main.all_parameters()] == ["scaled_0.w_0", "scaled_0.b_0"]


def test_core_has_what_scripts_touch() -> None:
    core = fluid.core
    maker = core.op_proto_and_checker_maker
    assert maker.kOpRoleAttrName() == "op_role" and int(maker.OpRole.Loss) == 256
    assert core.globals()["FLAGS_cpu_deterministic"] is False
    assert "FLAGS_nothing" not in core.globals()
    assert core.VarDesc.VarType.FP32 == 5
