"""Which values all replicas have alike, and that what differs is known before the vote."""

from __future__ import annotations

from typing import Any

import pytest

import rowlock.fluid as fluid
from rowlock.executor.kernels.capabilities import capabilities
from rowlock.graph.compile import compile_program
from rowlock.graph.ir.replica_program import ReplicaProgram
from rowlock.graph.ops.registry import OPS
from rowlock.graph.passes.target import Target
from rowlock.strategies.build import BuildStrategy

KINDS = BuildStrategy.ReduceStrategy
SCALES = BuildStrategy.GradientScaleStrategy


class Many:
    """Rows through a batch norm and a dropout, a parameter that is read again, and a rate that is fed."""

    def __init__(self) -> None:
        self.main, startup = fluid.Program(), fluid.Program()
        self.main.random_seed = 1
        with fluid.program_guard(self.main, startup), fluid.unique_name.guard():
            x, y = fluid.data("x", [None, 4]), fluid.data("y", [None, 1])
            rate = fluid.data("rate", [1])
            hidden = fluid.layers.batch_norm(fluid.layers.fc(x, 3), act="relu")
            hidden = fluid.layers.dropout(hidden, 0.5)
            loss = fluid.layers.mean(fluid.layers.square_error_cost(fluid.layers.fc(hidden, 1), y))
            fluid.optimizer.Adam(rate).minimize(loss)
            weight = self.main.all_parameters()[0]
            block = self.main.global_block()
            drawn = block.create_var(name="drawn", shape=[3], dtype="float32")
            block.append_op("uniform_random", {}, {"Out": drawn}, {"shape": [3], "seed": 3})
            self.names = {
                "loss": loss.name,
                "weight": weight.name,
                "gradient": f"{weight.name}@GRAD",
                "moment": f"{weight.name}_moment1_0",
                "norm": fluid.layers.reduce_sum(fluid.layers.square(weight)).name,
                "rows": fluid.layers.mul(x, weight).name,
                "drawn": drawn.name,
                "dropped": fluid.layers.dropout(weight, 0.5).name,
                "mean": "batch_norm_0.w_1",
            }

    def compiled(self, whole: bool = True, **build: Any) -> ReplicaProgram:
        target = Target(
            replicas=3,
            strategy=BuildStrategy(**build),
            has_loss=True,
            keeps=True,
            whole_feeds=frozenset({"rate"} if whole else ()),
        )
        feeds = ("x", "y", "rate")
        return compile_program(
            self.main, feeds, tuple(self.names.values()), target, capabilities()
        ).program

    def alike(self, program: ReplicaProgram) -> set[str]:
        pairs = zip(self.names, program.fetches, strict=False)
        return {name for name, i in pairs if program.values[i].alike}


ALIKE = {"weight", "gradient", "moment", "norm", "drawn"}


@pytest.mark.parametrize(
    "build, alike, states",
    [
        ({}, ALIKE, 2),
        ({"build_cinn_pass": True}, ALIKE, 2),
        ({"sync_batch_norm": True}, {*ALIKE, "mean"}, 0),
        (
            {"sync_batch_norm": True, "gradient_scale_strategy": SCALES.SampleWeighted},
            *(ALIKE, 2),  # a place without rows leaves its statistics as they are
        ),
        ({"reduce_strategy": KINDS.Reduce}, ALIKE, 2),  # a fed rate lets updates run everywhere
        ({"reduce_strategy": KINDS._NoReduce}, {"drawn"}, None),
    ],
)
def test_what_is_alike(build: dict[str, Any], alike: set[str], states: int | None) -> None:
    net = Many()
    program = net.compiled(**build)
    assert net.alike(program) == alike
    assert not lost_with_a_replica(program)
    assert states is None or len(program.place_states) == states


def lost_with_a_replica(program: ReplicaProgram) -> list[int]:
    """Return the fetches that are neither alike on all replicas nor known before the vote."""
    fetches = enumerate(program.fetches)
    return [k for k, i in fetches if not program.values[i].alike and k not in program.early]


def test_a_rate_for_each_place_makes_places_differ() -> None:
    net = Many()
    program = net.compiled(whole=False)
    assert net.alike(program) == {"gradient", "drawn"}
    assert not lost_with_a_replica(program)


def test_a_program_that_fetches_its_loss_votes_where_it_did() -> None:
    """No step pays for what nobody fetches."""
    net = Many()
    net.names = {"loss": net.names["loss"]}
    assert "replica_barrier" not in [node.op for node in net.compiled().nodes]


def test_ops_that_draw_by_row_say_so() -> None:
    holding = [op for op in OPS.values() if any(name.startswith("dropout") for name in op.attrs)]
    assert len(holding) >= 5
    for op in holding:
        drawing = {
            name: {"dropout_prob": 0.5, "is_test": False} if value == {} else value
            for name, value in op.attrs.items()
        }
        assert op.by_place(drawing) or op.type == "dropout_grad", op.type
