"""``fluid.contrib``: memory, frequencies of ops, parameters and FLOPs, counted by hand."""

from __future__ import annotations

import pytest

import rowlock.fluid as fluid
from rowlock.fluid.contrib.model_stat import summary
from tests.programs import own_programs


def test_counts_of_a_small_net(capsys: pytest.CaptureFixture[str]) -> None:
    with own_programs() as (main, _):
        image = fluid.data("image", [None, 3, 8, 8])
        conv = fluid.layers.conv2d(image, 4, 3, padding=1, act="relu", bias_attr=False)
        pooled = fluid.layers.pool2d(conv, 2, "max", 2)
        fluid.layers.fc(pooled, 10)
    # conv, relu: 4*8*8; pool: 4*4*4; mul and add: 10; four bytes each, five samples
    least, most, unit = fluid.contrib.memory_usage(main, 5)
    nbytes = 5 * 4 * (256 + 256 + 64 + 10 + 10)
    assert (least, most, unit) == (
        pytest.approx(nbytes / 1024 * 1.05),
        pytest.approx(nbytes / 1024 * 1.1),
        "KB",
    )
    single, pairs = fluid.contrib.op_freq_statistic(main)
    assert dict(single) == {"conv2d": 1, "relu": 1, "pool2d": 1, "mul": 1, "elementwise_add": 1}
    assert ("conv2d->relu", 1) in pairs and ("pool2d->mul", 1) in pairs
    summary(main)
    text = capsys.readouterr().out
    rows = [[cell.strip() for cell in line.split("|")[2:-1]] for line in text.splitlines()[3:7]]
    assert rows == [
        ["conv2d", "(3, 8, 8)", "(4, 8, 8)", "108", str(2 * 256 * 27)],
        ["relu", "(4, 8, 8)", "(4, 8, 8)", "0", "256"],
        ["pool2d", "(4, 8, 8)", "(4, 4, 4)", "0", "256"],
        ["mul", "(4, 4, 4)", "(10,)", "640", str(2 * 64 * 10)],
    ]
    assert "Total PARAMs: 748 " in text and f"Total FLOPs: {13824 + 512 + 1280} " in text


def test_what_is_no_program_or_batch_is_refused() -> None:
    with pytest.raises(TypeError, match=r"memory_usage takes a Program, got 3 \(int\)"):
        fluid.contrib.memory_usage(3, 1)  # type: ignore[arg-type]
    with pytest.raises(ValueError, match="batch_size must be positive"):
        fluid.contrib.memory_usage(fluid.Program(), 0)
