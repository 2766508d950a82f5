"""What users import: light, complete, and enough for a 2.x script."""

from __future__ import annotations

import ast
import subprocess
import sys
from pathlib import Path

import numpy as np

import rowlock as paddle


def test_importing_rowlock_imports_neither_ray_nor_cupy_nor_pydantic() -> None:
    code = (
        "import sys, rowlock; assert not {'ray', 'cupy', 'pydantic'} & set(sys.modules);"
        "import rowlock.fluid; assert not {'ray', 'cupy'} & set(sys.modules)"
    )
    subprocess.run([sys.executable, "-c", code], check=True, timeout=240)


def test_every_listed_name_is_there() -> None:
    for module in (paddle.fluid, paddle.static, paddle.nn, paddle.optimizer, paddle.static.nn):
        for name in module.__all__:
            assert getattr(module, name) is not None, f"{module.__name__}.{name}"
    for module in (paddle.fluid.layers, paddle.nn.functional, paddle.fluid.initializer):
        for name in module.__all__:
            assert callable(getattr(module, name)), f"{module.__name__}.{name}"


def test_a_module_that_publishes_its_imports_imports_nothing_else() -> None:
    # What type checkers take for an offer, and what ``publish_imports`` offers, are the same names.
    for path in Path(paddle.__path__[0]).rglob("*.py"):
        source = path.read_text()
        if "\npublish_imports(__name__" not in source:
            continue
        imports = [node for node in ast.parse(source).body if isinstance(node, ast.ImportFrom)]
        aliases = [alias for node in imports if node.module != "names" for alias in node.names]
        for alias in aliases:
            private = (alias.asname or "").startswith("_")
            assert alias.name in ("*", alias.asname) or private, f"{path}: {alias.name}"


def test_a_script_in_2x_style_trains() -> None:
    paddle.enable_static()
    main, startup = paddle.static.Program(), paddle.static.Program()
    main.random_seed = startup.random_seed = 5
    with paddle.static.program_guard(main, startup):
        x = paddle.static.data("x", [None, 8])
        y = paddle.static.data("y", [None, 1], "int64")
        hidden = paddle.nn.functional.relu(paddle.static.nn.fc(x, 16))
        logits = paddle.static.nn.fc(paddle.nn.functional.dropout(hidden, 0.1), 3)
        loss = paddle.nn.functional.cross_entropy(logits, y)
        schedule = paddle.optimizer.lr.StepDecay(0.1, step_size=5)
        optimizer = paddle.optimizer.Adam(
            schedule, weight_decay=1e-4, grad_clip=paddle.nn.ClipGradByGlobalNorm(1.0)
        )
        optimizer.minimize(loss)
    rng = np.random.default_rng(0)
    feed = {"x": rng.standard_normal((32, 8)).astype("float32")}
    feed["y"] = feed["x"][:, :3].argmax(1).reshape(-1, 1)
    exe = paddle.static.Executor(paddle.CPUPlace())
    with paddle.static.scope_guard(paddle.static.Scope()):
        exe.run(startup)
        losses = []
        for _ in range(20):
            losses.append(float(exe.run(main, feed, [loss])[0][0]))
            schedule.step()
        (rate,) = exe.run(main, feed, [optimizer._global_learning_rate()])
    assert losses[-1] < 0.6 * losses[0]
    assert rate[0] == np.float32(0.1 * 0.1**4)


def test_tensor_functions() -> None:
    main = paddle.static.Program()
    with paddle.static.program_guard(main, paddle.static.Program()):
        x = paddle.static.data("x", [2, 3])
        results = [
            paddle.sum(x, axis=1),
            paddle.mean(x),
            paddle.flatten(x),
            paddle.concat([x, x * 2.0 + 1.0], axis=1),
            paddle.argmax(x, axis=1),
            paddle.split(x, 3, axis=1)[2],
            1.0 - x,
            2.0 / x,
            x**2.0,
            -x,
        ]
    value = np.array([[1, 2, 3], [6, 5, 4]], "float32")
    values = paddle.static.Executor().run(main, {"x": value}, results)
    expected = [
        value.sum(1), [value.mean()], value.reshape(-1), np.concatenate([value, value * 2 + 1], 1),
        [2, 0], value[:, 2:], 1 - value, 2 / value, value**2, -value,
    ]  # fmt: skip
    for mine, theirs in zip(values, expected, strict=True):
        np.testing.assert_allclose(mine, theirs, rtol=1e-6)
