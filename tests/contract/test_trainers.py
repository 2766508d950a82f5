"""Several trainers train as one."""

from __future__ import annotations

import json
from collections.abc import Iterator
from dataclasses import replace
from functools import cache, partial
from typing import Any

import numpy as np
import pytest

import rowlock
import rowlock.fluid as fluid
from rowlock.executor.driver import program_on_gang
from rowlock.executor.gang import launchers
from rowlock.executor.gang.launchers import launcher_of
from rowlock.executor.gang.meeting import meet
from rowlock.executor.gang.trainers import Card, LocalTable, Trainers
from rowlock.executor.gang.worlds import World
from rowlock.executor.host import deadline
from rowlock.graph.compile import Compiled
from rowlock.strategies.build import BuildStrategy
from rowlock.strategies.cluster import ClusterConfig
from rowlock.strategies.errors import (
    CollectiveError,
    EnforceNotMet,
    ExecutionError,
    InvalidArgument,
    InvalidValue,
    TrainerLost,
    Unsupported,
)
from tests.conftest import ON_RAY_TOO, eventually, lasting, one_in, product
from tests.contract.conftest import ON_BOTH
from tests.contract.nets import OPTIMIZERS, Net, assert_close, feed
from tests.contract.trainers import (
    all_well,
    at_once,
    endpoints,
    images,
    normalised,
    part,
    rows_of_table,
    train,
    trained,
    words,
    words_fed,
)
from tests.pauses import Clock
from tests.programs import on_places


@pytest.fixture(autouse=True)
def trainers_end(request: pytest.FixtureRequest) -> Iterator[None]:
    """End the gangs of a test's trainers: none meets these again, and replicas that idle take time, too.

    Cases of one test do meet those of the case before; the next test ends them.
    """
    yield
    if request.function is test_trainers_equal_one_with_all_places:
        return
    for key in [key for key in launchers._gangs if key[-1] is not None]:
        launchers._close(key)


Reduce, Scale = BuildStrategy.ReduceStrategy, BuildStrategy.GradientScaleStrategy


@cache
def endpoints_of_cases(gang: str, count: int, places: int) -> list[str]:
    """Return the endpoints of so many trainers, whose gangs train one case after the other."""
    return endpoints(count)


@ON_RAY_TOO
@product(trainers=[(2, 1), (2, 2), (3, 1)], optimizer=OPTIMIZERS)
def test_trainers_equal_one_with_all_places(
    gang: str, optimizer: str, trainers: tuple[int, int]
) -> None:
    """``trainers``: how many, and the places of each."""
    count, places = trainers
    ends = endpoints_of_cases(gang, count, places)
    nets = [Net(OPTIMIZERS[optimizer]) for _ in range(count)]
    alone = Net(OPTIMIZERS[optimizer])
    with rowlock.cluster(launcher="threads"):
        program = alone.compiled(count * places, first=count * places)
        losses = [alone.run(program, feed(12, step), [alone.loss])[0] for step in range(20)]
    for net in nets[1:]:  # what it begins with is trainer 0's
        for parameter in net.main.all_parameters():
            tensor = net.scope.find_var(parameter.name).get_tensor()
            tensor.set(np.zeros(parameter.shape, "float32"))
    fetched = all_well(
        at_once([partial(train, net, t, ends, places, 20) for t, net in enumerate(nets)])
    )
    for net in nets:
        assert_close(net.parameters(), alone.parameters())
    for step, loss in enumerate(losses):
        np.testing.assert_allclose(
            np.concatenate([steps[step][0] for steps in fetched]), loss, rtol=1e-5
        )


@ON_RAY_TOO
def test_each_trainer_fetches_what_it_wants(gang: str) -> None:
    ends = endpoints(2)
    nets = [Net(OPTIMIZERS["adam"], drop=0.3) for _ in range(2)]
    alone = Net(OPTIMIZERS["adam"], drop=0.3)
    program = alone.compiled(2, first=2)

    def run(trainer: int) -> None:
        net = nets[trainer]
        program = trained(net, trainer, ends, 1)
        for step in range(6):
            expected = [net.loss] if trainer == 0 and step % 2 else []
            expected += [net.prediction] if trainer == 1 and step > 2 else []
            net.run(program, part(feed(8, step), trainer, 2), expected)

    all_well(at_once([partial(run, t) for t in range(2)]))
    with rowlock.cluster(launcher="threads"):
        for step in range(6):
            alone.run(program, feed(8, step), [])
    for net in nets:  # what dropout draws is as if one had fed all rows
        assert_close(net.parameters(), alone.parameters())


def test_own_places_and_statistics(threads: None) -> None:
    ends = endpoints(2)
    nets = [normalised() for _ in range(2)]
    fetched = all_well(at_once([partial(train, net, t, ends, 2, 3) for t, net in enumerate(nets)]))
    assert [len(steps[0][0]) for steps in fetched] == [2, 2]
    alone = normalised()
    program = alone.compiled(4, first=4)
    for step in range(3):
        alone.run(program, feed(12, step), [])
    # of the rows of the trainer's own first place
    moving = {"batch_norm_0.w_1", "batch_norm_0.w_2"}
    whole, own = alone.parameters(), [net.parameters() for net in nets]
    assert_close(own[0], whole)
    assert_close(*({n: v for n, v in one.items() if n not in moving} for one in (own[1], whole)))
    assert not any(np.allclose(own[1][name], whole[name]) for name in moving)


def refused(results: list[object], kind: type[Exception], *words: str) -> None:
    """Check that every trainer raised an error that says so."""
    for result in results:
        assert isinstance(result, kind), results
        for word in words:
            assert word in str(result), (word, str(result))


@ON_RAY_TOO
def test_lists_that_differ(gang: str) -> None:
    ends = endpoints(3)
    lists = [ends[:2], [ends[0], ends[2]]]
    nets = [Net(), Net()]
    results = at_once([partial(train, net, t, lists[t], 1, 1) for t, net in enumerate(nets)])
    refused(
        results, InvalidValue, "the list of trainers is", ends[1], ends[2], "trainer 1 (process"
    )


def card(trainer: int, ends: list[str], **others: Any) -> Card:
    return Card(trainer, ends, **{"places": 1, "device": "CPU", "libraries": {}, **others})


def test_two_drivers_with_one_number() -> None:
    ends, table = endpoints(3), LocalTable()

    def come(trainer: int) -> list[Card]:
        trainers = Trainers(tuple(ends), trainer)
        assert trainer == 0 or eventually(lambda: table.get(trainers.key(0)) is not None)
        return meet(trainers, card(trainer, ends), table, 30)

    results = at_once([partial(come, trainer) for trainer in (0, 1, 1)])
    refused(results, InvalidValue, f"two drivers are trainer 1 ({ends[1]})", "its own trainer_id")


def test_places_of_two_kinds() -> None:
    ends, table = endpoints(2), LocalTable()

    def come(trainer: int) -> list[Card]:
        own = card(trainer, ends, device=("CPU", "GPU")[trainer])
        return meet(Trainers(tuple(ends), trainer), own, table, 30)

    results = at_once([partial(come, trainer) for trainer in (0, 1)])
    refused(results, InvalidValue, "the places are ", "CPU", "GPU")


def test_what_an_earlier_run_left_is_no_trainer() -> None:
    ends, table = endpoints(2), LocalTable()
    dead = [card(t, ends, process=1 << 22) for t in range(2)]
    others = [card(t, [*ends, "other:1"], process=1 << 22) for t in range(2)]
    for left in (dead, others):
        for trainer, one in enumerate(left):
            seen = {str(1 - trainer): left[1 - trainer].nonce}
            table.put(Trainers(tuple(ends), 0).key(trainer), replace(one, seen=seen).packed())
        with pytest.raises(TrainerLost, match=r"trainer 1 .* did not come"):
            meet(Trainers(tuple(ends), 0), card(0, ends), table, 0.5)

    def come(trainer: int) -> World:
        own, trainers = card(trainer, ends, places=trainer + 1), Trainers(tuple(ends), trainer)
        return World(trainers, meet(trainers, own, table, 30), table)

    worlds = all_well(at_once([partial(come, trainer) for trainer in (0, 1)]))
    assert worlds[0].name == worlds[1].name
    assert [(world.first, world.size) for world in worlds] == [(0, 3), (1, 3)]


def test_what_a_trainer_said_before_it_ended_is_heard() -> None:
    ends = endpoints(2)
    cards = [card(0, ends), card(1, ends, process=1 << 22)]  # no process has this number

    class Late(LocalTable):
        """A table whose values are seen from the second look on."""

        def get(self, key: str) -> bytes | None:
            value = super().get(key)
            if value is None and key.endswith("/word/1"):
                self.put(key, b"3")
            return value

    assert World(Trainers(tuple(ends), 0), cards, Late()).exchange("word", 2, 60) == [2, 3]
    with pytest.raises(TrainerLost, match=r"trainer 1 .* has ended"):
        World(Trainers(tuple(ends), 0), cards, LocalTable()).exchange("word", 2, 60)


def test_a_trainer_that_never_comes(threads: None, monkeypatch: pytest.MonkeyPatch) -> None:
    """The time of two that wait for a third is over once both have read the other's card."""
    ends, table, clock = endpoints(3), LocalTable(), Clock()
    with rowlock.cluster(launcher="threads", start_deadline_s=0.2):
        results = at_once([partial(train, Net(), 0, ends[:2], 1, 1)])
    refused(results, TrainerLost, f"trainer 1 ({ends[1]}) did not come within 0.2 s", "1 of 2")
    monkeypatch.setattr(deadline, "time", clock)
    both = [Trainers(tuple(ends), t) for t in range(2)]

    def cards() -> list[Any]:
        entries = [table.get(one.key(t)) for t, one in enumerate(both)]
        return [json.loads(entry) for entry in entries if entry is not None]

    def end() -> None:
        assert eventually(lambda: [len(one["seen"]) for one in cards()] == [1, 1])
        beats = [one["beat"] for one in cards()]  # a card is laid anew behind a look at the others
        assert eventually(
            lambda: all(one["beat"] > beat for one, beat in zip(cards(), beats, strict=True))
        )
        clock.goes = True

    meeting = partial(meet, table=table, within=5.0)
    waiting = [partial(meeting, one, card(t, ends)) for t, one in enumerate(both)]
    *results, ended = at_once([*waiting, end])
    assert ended is None
    refused(results, TrainerLost, f"trainer 2 ({ends[2]}) did not come within 5 s", "2 of 3")


def test_a_late_trainer_is_waited_for(threads: None) -> None:
    ends = endpoints(2)
    nets = [Net(), Net()]
    table, key = (
        launcher_of(ClusterConfig(launcher="threads")).table(),
        Trainers(tuple(ends), 0).key(0),
    )

    def late() -> None:
        assert eventually(lambda: table.get(key) is not None)
        train(nets[1], 1, ends, 1, 1)

    all_well(at_once([partial(train, nets[0], 0, ends, 1, 1), late]))


@pytest.mark.parametrize(
    ("others", "words"),
    [
        ({"layers": 2}, ("'fc_1.w_0'", "at trainer 0")),
        ({"decay": 0.1}, ("at trainer 1", "built at")),
        ({"optimizer": OPTIMIZERS["adam"]}, ("the persistable", "trainer 1")),
    ],
)
def test_other_programs(threads: None, others: dict[str, object], words: tuple[str, ...]) -> None:
    ends = endpoints(2)
    nets = [Net(), Net(**others)]
    results = at_once([partial(train, net, t, ends, 1, 1) for t, net in enumerate(nets)])
    refused(results, InvalidValue, "has another program than trainer 0", *words)


BOTH = ["127.0.0.1:7101", "127.0.0.1:7102"]


@pytest.mark.parametrize(
    ("fields", "error", "text"),
    [
        ({"trainer_id": 2}, EnforceNotMet, r"trainer_id=2 .* number of trainers \(2\)"),
        ({"trainer_id": -1}, EnforceNotMet, "trainer_id=-1 must be at least 0"),
        ({"trainer_id": -1, "num_trainers": 1}, InvalidArgument, "1, but there are 2 trainers_end"),
        ({"trainer_id": 3, "trainers_endpoints": []}, EnforceNotMet, "trainer_id=3"),
        ({"num_trainers": 0, "trainers_endpoints": []}, EnforceNotMet, "at least 1, got 0"),
        ({"num_trainers": 3}, InvalidArgument, "is 3, but there are 2 .* Give one for each"),
        ({"trainers_endpoints": []}, InvalidArgument, "no endpoints: list one for each trainer"),
        ({"trainers_endpoints": [BOTH[0]] * 2}, InvalidValue, "twice: give each process an endp"),
        ({"trainers_endpoints": ["a:1", "b"]}, InvalidValue, "trainers_endpoints .* has 'b'"),
        ({"trainers_endpoints": ["", ""]}, InvalidValue, "is empty: name at least one"),
        ({"reduce_strategy": Reduce.Reduce}, Unsupported, "Use ReduceStrategy.AllReduce"),
        ({"reduce_strategy": Reduce._NoReduce}, Unsupported, "Leave num_trainers at 1"),
        ({"gradient_scale_strategy": Scale.SampleWeighted}, Unsupported, "Use CoeffNumDevice"),
    ],
)
def test_trainers_that_cannot_be(
    fields: dict[str, Any], error: type[Exception], text: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """They are refused where they are named, not by the first step, which would wait for others."""
    monkeypatch.delenv("PADDLE_TRAINER_ENDPOINTS", raising=False)
    net = Net()
    wrong = {"num_trainers": 2, "trainer_id": 0, "trainers_endpoints": BOTH, **fields}
    with pytest.raises(error, match=text):
        net.compiled(2, build=wrong)
    count, number = wrong.pop("num_trainers"), wrong.pop("trainer_id")
    with pytest.raises(error, match=text):
        fluid.ParallelExecutor(
            use_cuda=False,
            loss_name=net.loss.name,
            main_program=net.main,
            build_strategy=BuildStrategy(num_trainers=count, trainer_id=number, **wrong),
        )


def test_trainers_of_the_environment_and_of_the_transpiler(monkeypatch: pytest.MonkeyPatch) -> None:
    net = Net()

    def compiled(number: int) -> None:
        net.compiled(1, build={"num_trainers": 2, "trainer_id": number})

    monkeypatch.setenv("PADDLE_TRAINER_ENDPOINTS", "a:1;b:1")
    with pytest.raises(InvalidValue, match=r"PADDLE_TRAINER_ENDPOINTS .* commas .* has 'a:1;b:1'"):
        compiled(0)
    monkeypatch.setenv("PADDLE_TRAINER_ENDPOINTS", ",".join(BOTH))
    compiled(1)
    net.main._trainers_endpoints = [*BOTH, "127.0.0.1:7103"]
    with pytest.raises(InvalidArgument, match="num_trainers is 2, and there are 3 endpoints"):
        compiled(0)
    with pytest.warns(UserWarning, match="for 3 trainers, and num_trainers is 1"):
        net.compiled(1, build={"trainer_id": 1})  # alone: scripts give the number that they have


def test_an_op_that_fails_is_named_at_the_others(gang: str) -> None:
    ends = endpoints(2)
    nets = [rows_of_table(), rows_of_table()]

    def run(trainer: int) -> list[object]:
        net, outcomes = nets[trainer], []
        program = trained(net, trainer, ends, 1)
        for step in range(4):
            ids = np.array([[1], [2 + 100 * (step == 1 and trainer == 1)]], "int64")
            try:
                outcomes.append(net.run(program, {"ids": ids}, [net.loss])[0])
            except EnforceNotMet as error:
                outcomes.append(error)
        return outcomes

    results = all_well(at_once([partial(run, t) for t in range(2)]))
    wrong = [outcomes[1] for outcomes in results]
    assert isinstance(wrong[1], ExecutionError) and "lookup_table" in str(wrong[1])
    assert isinstance(wrong[0], CollectiveError), wrong
    assert "trainer 1 (process" in str(wrong[0]) and "lookup_table" in str(wrong[0])
    for outcomes in results:  # all met again
        assert all(isinstance(outcomes[step], np.ndarray) for step in (0, 2, 3)), results
    assert_close(nets[0].parameters(), nets[1].parameters())


def test_a_step_that_one_does_not_come_to(threads: None, monkeypatch: pytest.MonkeyPatch) -> None:
    ends = endpoints(2)
    monkeypatch.setattr("rowlock.executor.gang.worlds._LAST_WORDS_S", 0.5)
    with rowlock.cluster(launcher="threads", collective_deadline_s=3.0):
        nets = [Net(), Net()]
        results = at_once(
            [partial(train, nets[0], 0, ends, 2, 2), partial(train, nets[1], 1, ends, 2, 1)]
        )
        assert isinstance(results[0], TrainerLost), results
    assert "trainer 1 (process" in str(results[0]) and "missing" in str(results[0])


def test_a_program_whose_trainers_are_gone_answers_questions(
    threads: None, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Replicas forget what met the others; the driver may still be asked about it."""
    ends, nets = endpoints(2), [Net(), Net()]
    programs = [trained(net, t, ends, 2) for t, net in enumerate(nets)]

    def run(trainer: int, steps: int) -> None:
        for step in range(steps):
            nets[trainer].run(programs[trainer], part(feed(8, step), trainer, 2), [])

    programs[0].trace()
    monkeypatch.setattr("rowlock.executor.gang.worlds._LAST_WORDS_S", 0.5)
    with rowlock.cluster(launcher="threads", collective_deadline_s=3.0):
        *_, lost = at_once([partial(run, 1, 1), partial(run, 0, 2)])
        assert isinstance(lost, TrainerLost)
        assert programs[0].signals() == [] and programs[0].temporaries() == (0, 0)
        assert "for 4 replica(s)" in str(programs[0].explain())
        programs[0].trace(False)


@ON_RAY_TOO
def test_a_program_without_a_loss_runs_alone(gang: str) -> None:
    ends = endpoints(2)
    nets = [Net(), Net()]

    def run(trainer: int) -> None:
        net = nets[trainer]
        program = trained(net, trainer, ends, 2)
        net.run(program, part(feed(8), trainer, 2), [])
        if trainer == 0:
            test = net.compiled(2, net.test, share_vars_from=program)
            (prediction,) = net.run(test, feed(6), [net.prediction])
            assert prediction.shape == (6, 1)
        net.run(program, part(feed(8, 1), trainer, 2), [])

    all_well(at_once([partial(run, t) for t in range(2)]))
    assert_close(nets[0].parameters(), nets[1].parameters())


@ON_RAY_TOO
def test_programs_that_were_transpiled_for_nccl2(gang: str) -> None:
    ends, alone = endpoints(2), Net(OPTIMIZERS["momentum"])
    nets = [Net(OPTIMIZERS["momentum"]) for _ in range(2)]

    def run(trainer: int) -> None:
        net, config = nets[trainer], fluid.DistributeTranspilerConfig()
        config.mode = "nccl2"
        fluid.DistributeTranspiler(config).transpile(
            trainer,
            net.main,
            trainers=",".join(ends),
            startup_program=net.startup,
            current_endpoint=ends[trainer],
        )
        net.run(net.startup)
        program = trained(net, trainer, ends, 1, trainers_endpoints=[])
        for step in range(5):
            net.run(program, part(feed(8, step), trainer, 2), [net.loss])

    all_well(at_once([partial(run, t) for t in range(2)]))
    program = alone.compiled(2, first=2)
    with rowlock.cluster(launcher="threads"):
        for step in range(5):
            alone.run(program, feed(8, step), [])
    for net in nets:
        assert_close(net.parameters(), alone.parameters())


def test_a_program_for_several_trainers_that_is_compiled_for_one_warns() -> None:
    net, config, ends = Net(), fluid.DistributeTranspilerConfig(), endpoints(2)
    config.mode = "nccl2"
    fluid.DistributeTranspiler(config).transpile(
        0, net.main, trainers=",".join(ends), startup_program=net.startup, current_endpoint=ends[0]
    )
    with pytest.warns(UserWarning, match=r"for 2 trainers, and num_trainers is 1.*trainer_id"):
        fluid.CompiledProgram(net.main).with_data_parallel(net.loss.name)
    fluid.CompiledProgram(net.main.clone(for_test=True)).with_data_parallel()  # a test runs alone


def test_the_front_of_paddle_1(threads: None) -> None:
    ends, nets = endpoints(2), [Net(), Net()]

    def run(trainer: int) -> int:
        net, build = nets[trainer], BuildStrategy(trainers_endpoints=ends)
        exe = fluid.ParallelExecutor(
            use_cuda=False,
            loss_name=net.loss.name,
            main_program=net.main,
            build_strategy=build,
            num_trainers=2,
            trainer_id=trainer,
            scope=net.scope,
        )
        rows = 4 * exe.device_count
        (loss,) = exe.run([net.loss.name], feed=part(feed(2 * rows), trainer, 2))
        return len(loss)

    assert all_well(at_once([partial(run, t) for t in range(2)])) == [len(fluid.cpu_places())] * 2
    assert_close(nets[0].parameters(), nets[1].parameters())


@ON_BOTH
@pytest.mark.parametrize("optimizer", ["sgd", "momentum", "lazy adam"])
@pytest.mark.parametrize("places", [1, 2])
def test_gradients_of_sparse_tables_travel_as_rows(
    threads: None, optimizer: str, places: int
) -> None:
    """As one driver's dense ones. Places bring different numbers of rows, which change by step."""
    lazy = optimizer == "lazy adam"  # has no like among dense updates
    ends, nets, alone = endpoints(2), [words(optimizer) for _ in range(2)], words(optimizer, lazy)
    rows = [(3, 4, 2, 5), (5, 2, 2, 3), (3, 4, 2, 5), (3, 4, 2, 5)]  # of each place, by step

    def run(trainer: int) -> list[str]:
        net = nets[trainer]
        program = trained(net, trainer, ends, places)
        for step, counts in enumerate(rows):
            own = range(trainer * places, (trainer + 1) * places)
            fed = [words_fed(counts[place], step, place) for place in own]
            net.exe.run(program, fed, [net.loss], scope=net.scope)
        return [note for note in program.explain().graph.notes if "stay rows" in note]

    notes = all_well(at_once([partial(run, t) for t in range(2)]))
    assert notes[0] == notes[1] and len(notes[0]) == 1
    program = alone.compiled(2 * places, first=2 * places)
    for step, counts in enumerate(rows):
        fed = [words_fed(counts[place], step, place) for place in range(2 * places)]
        alone.exe.run(program, fed, [alone.loss], scope=alone.scope)
    for net in nets:
        assert_close(net.parameters(), alone.parameters())


@ON_BOTH
def test_a_step_with_rows_costs_as_much_however_high_the_table_is(threads: None) -> None:
    def temporaries(height: int) -> list[tuple[int, int]]:
        ends, nets = endpoints(2), [words("sgd", height=height) for _ in range(2)]

        def run(trainer: int) -> tuple[int, int]:
            program = trained(nets[trainer], trainer, ends, 1)
            for step in range(3):
                nets[trainer].run(program, words_fed(4, step, trainer), [nets[trainer].loss])
            return program.temporaries()

        sizes = all_well(at_once([partial(run, t) for t in range(2)]))
        rowlock.shutdown()
        return sizes

    low, high = temporaries(50), temporaries(100_000)
    assert low == high and all(nbytes < 1 << 16 for _, nbytes in high)


def test_kernels_are_those_that_trainer_0_chose(threads: None, monkeypatch: Any) -> None:
    ends, nets, asked = endpoints(2), [images(), images()], []

    def choose(compiled: Compiled, *others: Any) -> Compiled:
        asked.append(compiled)
        nodes = [
            replace(node, kernel=names[-1] if names else node.kernel)
            for node, names in zip(
                compiled.program.nodes, compiled.alternatives or [()] * 999, strict=False
            )
        ]
        return replace(compiled, program=replace(compiled.program, nodes=tuple(nodes)))

    monkeypatch.setattr(program_on_gang, "chosen", choose)

    def run(trainer: int) -> list[str]:
        net = nets[trainer]
        program = trained(net, trainer, ends, 1, measure_kernels=True)
        fed = {"x": np.ones((2, 3, 8, 8), "float32")}
        for fetches in ([net.loss], []):
            net.run(program, fed, fetches)
        return [node.kernel for node in program._parallel.last.program.nodes]

    kernels = all_well(at_once([partial(run, t) for t in range(2)]))
    assert len(asked) == 1 and kernels[0] == kernels[1]
    assert_close(nets[0].parameters(), nets[1].parameters())


@pytest.mark.cuda
@pytest.mark.parametrize("rows", one_in(2, [False, True]))
def test_trainers_on_gpus(ray_cluster: None, rows: bool) -> None:
    def net() -> Net:
        return words("momentum", rows) if rows else Net()

    batch = words_fed if rows else feed
    ends, nets = endpoints(2), [net(), net()]

    def run(trainer: int) -> None:
        net = nets[trainer]
        build = {"num_trainers": 2, "trainer_id": trainer, "trainers_endpoints": ends}
        program = on_places(net.main, fluid.cuda_places([trainer]), net.loss, build=build)
        exe = fluid.Executor(fluid.CUDAPlace(trainer))
        for step in range(4):
            fed = part(batch(8, step), trainer, 2)
            exe.run(program, fed, [net.loss], scope=net.scope)
        report = program.explain()
        assert rows == any("stay rows" in note for note in report.graph.notes)
        # Parted by the vote
        assert "a step is 2 graph(s)" in str(report) and "2 captured" in str(report)

    with lasting("ray"):
        all_well(at_once([partial(run, t) for t in range(2)]))
        alone = words("momentum", False) if rows else Net()
        program = alone.compiled(2)
        with rowlock.cluster(launcher="threads"):
            for step in range(4):
                alone.run(program, batch(8, step), [])
        for net in nets:
            assert_close(net.parameters(), alone.parameters(), 1e-5)
        rowlock.shutdown()
