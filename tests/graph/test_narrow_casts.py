"""Casts of mixed precision: which go, and that no bit changes."""

from __future__ import annotations

from collections import Counter
from typing import Any

import numpy as np
import pytest

import rowlock
import rowlock.fluid as fluid
from rowlock import static
from rowlock.executor.device.gpus import local_gpus
from rowlock.graph.ir.graph import Graph
from rowlock.graph.ir.reader import from_program
from rowlock.graph.passes.narrow_casts import narrow_casts
from rowlock.graph.passes.target import Target
from rowlock.graph.pipeline import run_pipeline
from rowlock.strategies.build import BuildStrategy
from rowlock.strategies.types import VarType
from tests.ops.gpu import needs_compiler
from tests.programs import on_places, own_programs

L = fluid.layers
ROWS, LENGTH, WIDTH, WORDS, STEPS = 4, 6, 8, 11, 3


def attend(x: Any) -> Any:
    joint = L.reshape(L.fc(x, 3 * WIDTH, num_flatten_dims=2), [0, LENGTH, 3, 2, WIDTH // 2])
    parts = L.split(L.transpose(joint, [2, 0, 3, 1, 4]), 3, 0)
    query, key, value = [L.squeeze(part, [0]) for part in parts]
    scores = L.softmax(L.matmul(query, key, transpose_y=True, alpha=0.5))
    mixed = L.transpose(L.matmul(scores, value), [0, 2, 1, 3])
    return L.reshape(mixed, [0, LENGTH, WIDTH])


def program(level: str, dtype: str = "bfloat16") -> tuple[Any, Any, Any, Any]:
    with own_programs(2) as (main, startup):
        words = fluid.data("words", [None, LENGTH], "int64")
        x = L.fc(fluid.embedding(words, (WORDS, WIDTH)), WIDTH, num_flatten_dims=2)
        x = x + attend(x)
        x = L.fc(L.gelu(L.fc(x, WIDTH, num_flatten_dims=2)), 3, num_flatten_dims=2)
        loss = L.mean(L.square(x))
        optimizer = static.amp.decorate(fluid.optimizer.Adam(0.01), level=level, dtype=dtype)
        optimizer.minimize(loss)
    return main, startup, loss, optimizer


def graph(level: str) -> tuple[Graph, str]:
    main, _, loss, _ = program(level)
    return from_program(main, ["words"]), loss.name


def count(graph: Graph) -> Counter[str]:
    return Counter(node.op for node in graph.nodes)


def learned(level: str, dtype: str, compiled: bool, place: Any = None, **flags: bool) -> list[Any]:
    main, startup, loss, optimizer = program(level, dtype)
    place, scope = place or fluid.CPUPlace(), fluid.Scope()
    exe = fluid.Executor(place)
    run: Any = main
    if compiled:
        strategy = BuildStrategy(verify_passes=True, **flags)
        run = on_places(main, [place], loss, build=strategy)
    words = np.random.RandomState(0).randint(0, WORDS, (ROWS, LENGTH))
    with rowlock.cluster(launcher="threads"), fluid.scope_guard(scope):
        exe.run(startup)
        if level == "O2":
            optimizer.amp_init(place)
        losses = [exe.run(run, feed={"words": words}, fetch_list=[loss])[0] for _ in range(STEPS)]
        tensors = [scope.find_var(p.name).get_tensor() for p in main.all_parameters()]
        return [*losses, *map(np.array, tensors)]


@pytest.mark.parametrize(
    ("level", "dtype"), [("O1", "bfloat16"), ("O2", "bfloat16"), ("O1", "float16")]
)
def test_training_has_the_same_bits(level: str, dtype: str) -> None:
    pairs = zip(learned(level, dtype, True), learned(level, dtype, False), strict=True)
    for one, other in pairs:
        assert np.asarray(one).tobytes() == np.asarray(other).tobytes()


@needs_compiler
@pytest.mark.slow
def test_fused_training_on_a_gpu_is_near(monkeypatch: pytest.MonkeyPatch) -> None:
    if not local_gpus():
        monkeypatch.setenv("ROWLOCK_SIMULATED_GPUS", "1")
    flags = ("fused_attention", "fuse_gemm_epilogue", "enable_auto_fusion")
    fused = learned("O1", "bfloat16", True, fluid.CUDAPlace(0), **dict.fromkeys(flags, True))
    plain = learned("O1", "bfloat16", False)
    np.testing.assert_allclose(fused[:STEPS], plain[:STEPS], rtol=1e-2)


def test_what_moves_and_what_computes_an_element_is_in_low_precision() -> None:
    before, loss = graph("O1")
    after = narrow_casts(before, Target(fetches=(loss,), strategy=BuildStrategy()))
    assert count(before)["cast"] - count(after)["cast"] >= 15
    low = {"squeeze2", "squeeze2_grad", "split", "gelu", "gelu_grad", "transpose2"}
    for node in after.nodes:
        if node.op in low:
            assert {v.spec.dtype for v in (*node.reads(), *node.writes())} == {VarType.BF16}
    assert all(n.writes()[0].spec.dtype == VarType.FP32 for n in after.nodes if n.op == "softmax")
    again = narrow_casts(after, Target(fetches=(loss,), strategy=BuildStrategy()))
    assert again is after, "settled"


def test_attention_is_found_at_level_o1() -> None:
    before, loss = graph("O1")
    strategy = BuildStrategy(fused_attention=True)
    after, _ = run_pipeline(before, Target(fetches=(loss,), strategy=strategy))
    counts = count(after)
    assert counts["fused_dot_product_attention"] == counts["fused_dot_product_attention_grad"] == 1
    assert not counts["softmax"] and not counts["squeeze2"]


def test_tables_are_looked_up_as_they_lie() -> None:
    before, loss = graph("O2")
    after = narrow_casts(before, Target(fetches=(loss,), strategy=BuildStrategy()))
    (node,) = (n for n in after.nodes if n.op == "lookup_table_v2")
    assert node.inputs["W"][0] is not None
    assert node.inputs["W"][0].name == "embedding_0.w_0"
    assert node.outputs["Out"][0] is not None
    assert node.outputs["Out"][0].spec.dtype == VarType.BF16


def test_what_is_to_run_on_the_host_stays_as_it_is() -> None:
    with own_programs() as (main, _):
        wide = L.cast(fluid.data("x", [None, 4], "bfloat16"), "float32")
        with fluid.device_guard("cpu"):
            hidden = L.gelu(wide)
        L.cast(hidden, "bfloat16")
    before = from_program(main, ["x"])
    assert narrow_casts(before, Target(fetches=("cast_1.tmp_0",))) is before


def test_what_is_fetched_is_still_made_in_its_type() -> None:
    before, loss = graph("O1")
    wide = [n.writes()[0] for n in before.nodes if n.op in ("squeeze2", "gelu")]
    names = tuple(value.name for value in wide)
    after = narrow_casts(before, Target(fetches=(loss, *names), strategy=BuildStrategy()))
    assert set(wide) <= {value for node in after.nodes for value in node.writes()}
    assert count(after)["cast"] > 0
