"""What DistributeTranspiler is made of: slices, dispatchers, tables, clips, first values; its getters."""

from __future__ import annotations

import socket
import subprocess
import sys
import threading
from typing import Any

import numpy as np
import pytest

import rowlock.fluid as fluid
from rowlock.fluid.transpiler.details import wait_server_ready
from rowlock.fluid.transpiler.distribute_transpiler import slice_variable
from rowlock.graph.transpiler import ports
from rowlock.strategies.errors import InvalidState, InvalidValue, ServerLost, Unsupported
from tests.programs import own_programs

L = fluid.layers
SERVERS = ["10.0.0.1:6174", "10.0.0.2:6174"]


class Sized:
    def __init__(self, shape: tuple[int, ...]) -> None:
        self.name, self.shape = "w", shape


def programs(build: Any, optimizer: Any = None) -> tuple[fluid.Program, fluid.Program]:
    with own_programs() as (main, startup):
        (optimizer or fluid.optimizer.SGD(0.1)).minimize(L.mean(build()))
    return main, startup


def wide() -> Any:
    x = L.data("x", [100])
    return L.fc(L.fc(x, 300), 1)


def transpiled(
    build: Any = wide, optimizer: Any = None, config: Any = None, **call: Any
) -> tuple[fluid.DistributeTranspiler, fluid.Program, fluid.Program]:
    main, startup = programs(build, optimizer)
    t = fluid.DistributeTranspiler(config)
    settings = {"pservers": ",".join(SERVERS), "trainers": 2, **call}
    t.transpile(0, main, startup_program=startup, **settings)
    return t, main, startup


def settings(**fields: Any) -> fluid.DistributeTranspilerConfig:
    config = fluid.DistributeTranspilerConfig()
    for name, value in fields.items():
        setattr(config, name, value)
    return config


def ops(program: fluid.Program, *kinds: str) -> list[Any]:
    return [op for block in program.blocks for op in block.ops if op.type in kinds]


# -- slices and dispatchers -----------------------------------------------------------------------


@pytest.mark.parametrize(
    ("shape", "count", "least", "sizes"),
    [
        ((1000, 30), 2, 8192, [15000, 15000]),
        ((1000, 30), 4, 8192, [10020, 10020, 9960]),
        ((100, 1), 2, 8192, [100]),
        ((3, 1000), 3, 1000, [1000] * 3),
        ((7, 1024), 3, 1024, [3072, 3072, 1024]),
        ((100000,), 8, 8192, [12500] * 8),
        ((33, 777), 10, 8192, [8547] * 3),
        ((10, 10, 100), 4, 1000, [3000, 3000, 3000, 1000]),
    ],
)
def test_slices_are_paddles(
    shape: tuple[int, ...], count: int, least: int, sizes: list[int]
) -> None:
    blocks = slice_variable([Sized(shape)], count, least)
    assert [str(block) for block in blocks] == [f"w:{k}:{size}" for k, size in enumerate(sizes)]


def test_round_robin_goes_on_over_calls_and_begins_again() -> None:
    dispatcher = fluid.transpiler.RoundRobin(SERVERS)
    first, second = SERVERS
    assert dispatcher.eps == SERVERS
    assert dispatcher.dispatch(["a", "b", "c"]) == [first, second, first]
    assert dispatcher.dispatch(["d"]) == [second]
    dispatcher.dispatch(["e"])
    dispatcher.reset()
    assert dispatcher.dispatch(["f"]) == [first]


def test_hash_name_is_the_same_in_every_process_for_names_and_variables() -> None:
    names = [f"fc_{k}.w_0" for k in range(12)]
    code = f"import rowlock.fluid as f; print(f.HashName({SERVERS!r}).dispatch({names!r}))"
    env = {"PYTHONPATH": ":".join(sys.path), "PYTHONHASHSEED": "77", "PATH": ""}
    process = subprocess.run([sys.executable, "-c", code], env=env, capture_output=True, text=True)
    endpoints = fluid.HashName(SERVERS).dispatch(names)
    assert process.stdout.strip() == str(endpoints), process.stderr
    assert set(endpoints) == set(SERVERS)
    assert fluid.HashName(SERVERS).dispatch([Sized((1,))]) == fluid.HashName(SERVERS).dispatch(
        ["w"]
    )


def test_hash_name_places_parameters_where_their_gradients_go() -> None:
    t, main, _ = transpiled(
        config=settings(split_method=fluid.HashName), pservers="a:1,b:2,c:3,d:4"
    )
    sent = {
        n: e
        for op in ops(main, "send")
        for n, e in zip(op.input("X"), op.attr("epmap"), strict=True)
    }
    for endpoint in ("a:1", "b:2", "c:3", "d:4"):
        if endpoint not in sent.values():
            continue
        (loop,) = ops(t.get_pserver_program(endpoint), "listen_and_serv")
        assert {n for n in loop.input("X") if n.endswith("trainer_0")} == {
            n for n, e in sent.items() if e == endpoint
        }


def test_two_parts_at_one_server_have_state_of_their_own() -> None:
    class Last(fluid.transpiler.PSDispatcher):
        def dispatch(self, varlist: Any) -> list[str]:
            return [self.eps[-1]] * len(varlist)

    t, _, _ = transpiled(
        optimizer=fluid.optimizer.Momentum(0.1, 0.9), config=settings(split_method=Last)
    )
    server, startup = t.get_pserver_programs(SERVERS[1])
    state = [op.input("Velocity")[0] for op in ops(server, "momentum")]
    assert len(set(state)) == len(state) == 5
    constants = [name for op in ops(startup, "fill_constant") for name in op.output_arg_names]
    assert set(state) <= set(constants) and len(constants) == len(set(constants))
    for op in ops(startup, "fill_constant"):
        variable = startup.global_block().var(op.output("Out")[0])
        assert tuple(op.attr("shape")) == variable.shape
    with pytest.warns(UserWarning, match="no parameter"):
        empty = t.get_pserver_program(SERVERS[0])
    assert [len(block.ops) for block in empty.blocks] == [1, 0]


# -- first values ---------------------------------------------------------------------------------


def test_parts_of_given_values_are_cut_from_them() -> None:
    values = np.arange(30000, dtype="float32").reshape(100, 300)

    def net() -> Any:
        initializer = fluid.initializer.NumpyArrayInitializer(values)
        attr = fluid.ParamAttr("w", initializer=initializer)
        return L.fc(L.data("x", [100]), 300, param_attr=attr)

    t, _, _ = transpiled(net)
    exe = fluid.Executor(fluid.CPUPlace())
    rows = []
    for name, endpoint in (("w.block0", SERVERS[1]), ("w.block1", SERVERS[0])):
        scope = fluid.Scope()
        exe.run(t.get_startup_program(endpoint), scope=scope)
        rows.append(np.array(scope.find_var(name).get_tensor()))
    np.testing.assert_array_equal(np.concatenate(rows), values)


def test_parts_of_computed_values_are_cut_from_the_whole() -> None:
    main, startup = programs(wide)
    block = startup.global_block()
    weight = block.var("fc_0.w_0")
    block.append_op("scale", {"X": weight}, {"Out": weight}, {"scale": 2.0})
    half = block.create_var(name="half", shape=[100, 300], dtype="float32", persistable=True)
    block.append_op(
        "fill_constant", {}, {"Out": half}, {"shape": [100, 300], "value": 0.5, "dtype": 5}
    )
    ops_of_weight = [op for op in block.ops if "fc_0.w_0" in op.output_arg_names]
    assert [op.type for op in ops_of_weight] == ["uniform_random", "scale"]
    t = fluid.DistributeTranspiler()
    t.transpile(0, main, ",".join(SERVERS), 2, startup_program=startup)
    (cut,) = ops(t.get_startup_program(SERVERS[0]), "slice")
    assert (cut.attr("starts"), cut.attr("ends")) == ([50], [100])
    scope = fluid.Scope()
    fluid.Executor(fluid.CPUPlace()).run(t.get_startup_program(SERVERS[0]), scope=scope)
    part = np.array(scope.find_var("fc_0.w_0.block1").get_tensor())
    assert part.shape == (50, 300) and np.abs(part).max() > 0


# -- getters --------------------------------------------------------------------------------------


def test_getters_can_be_called_in_any_order_and_again() -> None:
    t, main, _ = transpiled(optimizer=fluid.optimizer.Adam(0.1))
    assert t.get_trainer_program(wait_port=False) is main
    server, startup = t.get_pserver_programs(SERVERS[0])
    assert t.get_pserver_program(SERVERS[0]) is server
    assert t.get_startup_program(SERVERS[0]) is startup
    assert t.get_startup_program(SERVERS[0], server, fluid.Program()) is startup
    assert len(ops(server, "adam")) == 3
    assert not ops(main, "adam") and t.get_trainer_program(wait_port=False) is main


def test_one_trainer_sends_under_the_names_that_its_server_expects() -> None:
    t, main, _ = transpiled(trainers=1)
    sent = {name for op in ops(main, "send") for name in op.input("X")}
    expected = {
        n
        for e in SERVERS
        for op in ops(t.get_pserver_program(e), "listen_and_serv")
        for n in op.input("X")
    }
    assert sent == expected
    assert not ops(t.get_pserver_program(SERVERS[0]), "sum")


def test_a_program_without_an_optimizer_only_waits() -> None:
    main, startup = fluid.Program(), fluid.Program()
    with fluid.program_guard(main, startup):
        L.fc(L.data("x", [4]), 1)
    t = fluid.DistributeTranspiler()
    with pytest.warns(UserWarning, match=r"no optimizer updates.*Call minimize before transpile"):
        t.transpile(0, main, ",".join(SERVERS), 2, startup_program=startup)
    assert [op.type for op in main.global_block().ops[-2:]] == ["send_barrier", "fetch_barrier"]


def test_what_went_where_is_printed(capsys: pytest.CaptureFixture[str]) -> None:
    t, _, _ = transpiled(config=settings(print_log=True))
    text = capsys.readouterr().out
    assert "10.0.0.1:6174  fc_0.w_0.block1  rows 50 to 99, [50, 300]" in text
    assert text.strip() in repr(t)


def test_a_program_that_was_rewritten_says_so() -> None:
    _, main, startup = transpiled()
    with pytest.raises(InvalidState, match="rewritten before"):
        fluid.DistributeTranspiler().transpile(0, main, startup_program=startup)
    assert main.clone().distribution.shards["fc_0.w_0"][1].begin == 50
    info = main.distribution.vars_info()["fc_0.w_0"]
    assert info["sections"] == ["50", "50"] and info["is_sparse"] == ["False"]


# -- tables ---------------------------------------------------------------------------------------


def embedded(**settings: Any) -> Any:
    words = [L.data(name, [1], dtype="int64") for name in ("a", "b")]
    rows = [L.embedding(w, [4001, 8], is_sparse=True, param_attr="big", **settings) for w in words]
    return L.fc(L.concat(rows, axis=1), 4)


def test_lookups_with_their_own_padding_stay_apart() -> None:
    def net() -> Any:
        a = L.data("a", [1], dtype="int64")
        rows = [
            L.embedding(a, [3000, 8], is_sparse=True, param_attr="t", padding_idx=p)
            for p in (None, 2)
        ]
        return L.fc(L.concat(rows, axis=1), 4)

    _, main, startup = transpiled(net)
    lookups = ops(main, "distributed_lookup_table")
    assert sorted(op.attr("padding_idx") for op in lookups) == [-1, 2]
    assert not ops(main, "lookup_table") and "t" not in [
        n for op in ops(main, "recv") for n in op.output("Out")
    ]
    assert "t" in [name for op in startup.global_block().ops for name in op.output_arg_names]


def test_ids_that_follow_from_rows_are_looked_up_behind_them() -> None:
    def net() -> Any:
        row = L.embedding(
            L.data("a", [1], dtype="int64"), [3000, 8], is_sparse=True, param_attr="t"
        )
        ids = L.cast(L.reduce_max(row, dim=1, keep_dim=True), "int64")
        again = L.embedding(ids, [3000, 8], is_sparse=True, param_attr="t")
        return L.fc(L.concat([row, again], axis=1), 4)

    _, main, _ = transpiled(net)
    kinds = [op.type for op in main.global_block().ops]
    first, second = (i for i, kind in enumerate(kinds) if kind == "distributed_lookup_table")
    assert first < kinds.index("cast") < second


def test_a_table_that_is_also_multiplied_is_received_whole() -> None:
    def net() -> Any:
        row = L.embedding(
            L.data("a", [1], dtype="int64"), [3000, 8], is_sparse=True, param_attr="t"
        )
        table = fluid.default_main_program().global_block().var("t")
        return L.matmul(row, table, transpose_y=True)

    _, main, _ = transpiled(net)
    assert ops(main, "lookup_table") and not ops(main, "distributed_lookup_table")
    received = [name for op in ops(main, "recv") for name in op.output("Out")]
    assert {"t.block0", "t.block1"} <= set(received)


def test_weight_decay_of_a_table_is_the_servers() -> None:
    decay = fluid.regularizer.L2Decay(0.1)
    t, main, _ = transpiled(embedded, fluid.optimizer.SGD(0.1, regularization=decay))
    assert [op.input("X") for op in ops(main, "split_selected_rows")] == [["big@GRAD"]]
    assert main.distribution.rows == main.distribution.tables == {"big"}
    (update,) = (
        op.block
        for op in ops(t.get_pserver_program(SERVERS[0]), "sgd")
        if "big" in op.input("Param")[0]
    )
    assert [op.type for op in update.ops] == ["sum", "scale", "scale", "sum", "sgd"]
    t, main, _ = transpiled(
        embedded,
        fluid.optimizer.SGD(0.1, regularization=decay),
        settings(geo_sgd_mode=True),
        sync_mode=False,
    )
    assert main.distribution.rows == set()  # all rows change in each step


@pytest.mark.parametrize("sync_mode", [True, False])
def test_a_distributed_table_is_cut_by_ids(sync_mode: bool) -> None:
    t, main, startup = transpiled(
        lambda: embedded(is_distributed=True, padding_idx=0), sync_mode=sync_mode
    )
    t.get_trainer_program(wait_port=False)
    kinds = [op.type for op in main.global_block().ops]
    assert kinds[:3] == ["split_ids", "prefetch", "merge_ids"] and kinds.count("split_ids") == 2
    assert main._distributed_lookup_table == main.distribution.distributed_table == "big"
    assert [op.output("Out") for op in ops(startup, "fake_init")] == [["big"]]
    server, first = t.get_pserver_programs(SERVERS[1])
    part = server.global_block().var("big")
    assert (part.shape, part.type) == ((2001, 8), fluid.core.VarDesc.VarType.SELECTED_ROWS)
    (loop,) = ops(server, "listen_and_serv")
    block = int(loop.attr("prefetch_var_name_to_block_id")[0].split(":")[1])
    (lookup,) = server.block(block).ops
    assert (lookup.type, lookup.attr("padding_idx")) == ("lookup_sparse_table", 0)
    assert [op.type for op in server.block(loop.attr("checkpint_block_id")).ops] == ["save"]
    merges = ["sum", "scale"] if sync_mode else []
    (update,) = (op.block for op in ops(server, "sgd") if op.input("Param") == ["big"])
    assert [op.type for op in update.ops] == [*merges, "sgd"]
    assert [
        op.attr("shape") for op in first.global_block().ops if "big" in op.output_arg_names
    ] == [[2001, 8]]


def test_a_distributed_table_says_what_it_cannot() -> None:
    with pytest.warns(UserWarning, match="update the table 'big'.*by SGD"):
        transpiled(lambda: embedded(is_distributed=True), fluid.optimizer.Adam(0.1))

    def two() -> Any:
        words = L.data("a", [1], dtype="int64")
        rows = [L.embedding(words, [50, 8], is_distributed=True, param_attr=name) for name in "pq"]
        return L.fc(L.concat(rows, axis=1), 4)

    with pytest.raises(Unsupported, match=r"one table with is_distributed=True.*2 \(p, q\)"):
        transpiled(two)


# -- updates that servers cannot make -------------------------------------------------------------


def test_norms_of_parts_are_warned_of() -> None:
    with pytest.warns(UserWarning, match="slice_var_up = False"):
        transpiled(optimizer=fluid.optimizer.LarsMomentum(0.1, 0.9))
    transpiled(
        optimizer=fluid.optimizer.LarsMomentum(0.1, 0.9), config=settings(slice_var_up=False)
    )


@pytest.mark.parametrize("kind", [fluid.optimizer.Adadelta, fluid.optimizer.Lamb])
def test_updates_that_paddles_servers_do_not_know(kind: Any) -> None:
    config = settings(slice_var_up=kind is fluid.optimizer.Adadelta)
    t, _, _ = transpiled(optimizer=kind(0.1), config=config)
    for endpoint in SERVERS:
        server, startup = t.get_pserver_programs(endpoint)
        initialized = {name for op in startup.global_block().ops for name in op.output_arg_names}
        for op in ops(server, "adadelta", "lamb"):
            assert set(op.input_arg_names) - set(op.input("Grad")) <= initialized
            (update,) = op.input("Param")
            shape = server.global_block().var(update).shape
            assert server.global_block().var(op.input("Grad")[0]).shape == shape


def test_tables_of_sampled_classes_are_received_whole() -> None:
    def net() -> Any:
        x = L.fc(L.data("x", [8]), 8)
        label = L.data("label", [1], dtype="int64")
        attrs = {"is_sparse": True, "param_attr": "table", "bias_attr": False}
        return L.nce(x, label, 3000, num_neg_samples=5, **attrs)

    _, main, _ = transpiled(net)
    received = [name for op in ops(main, "recv") for name in op.output("Out")]
    assert {"table.block0", "table.block1"} <= set(received)
    assert [op.attr("height_sections") for op in ops(main, "split_selected_rows")] == [[1500, 1500]]
    assert main.distribution.rows == {"table"} and not main.distribution.tables


def test_updates_that_servers_cannot_make_are_refused() -> None:
    with pytest.raises(InvalidValue, match=r"cannot make the update 'dpsgd'.*Take one of"):
        transpiled(optimizer=fluid.optimizer.Dpsgd(0.1))


def test_a_program_that_is_refused_is_left_as_it_was() -> None:
    main, startup = programs(wide, fluid.optimizer.Dpsgd(0.1))
    before = [program.desc.serialize_to_string() for program in (main, startup)]
    with pytest.raises(InvalidValue, match="dpsgd"):
        fluid.DistributeTranspiler().transpile(0, main, "a:1", 2, False, startup)
    assert [program.desc.serialize_to_string() for program in (main, startup)] == before
    assert not main._is_distributed


def test_updates_that_read_what_trainers_compute_are_refused() -> None:
    main, startup = programs(wide)
    block = main.global_block()
    update = next(op for op in block.ops if op.type == "sgd")
    index = update.idx
    rate = block.create_var(name="own_rate", shape=[1], dtype="float32")
    block._insert_op(
        index, "fill_constant", {}, {"Out": rate}, {"shape": [1], "value": 0.1, "dtype": 5}
    )
    update.inputs["LearningRate"] = ["own_rate"]
    t = fluid.DistributeTranspiler()
    t.transpile(0, main, ",".join(SERVERS), 2, startup_program=startup)
    endpoint = next(
        op.attr("epmap")[0] for op in ops(main, "send") if op.attr("op_role_var")[0] == "fc_0.b_0"
    )
    with pytest.raises(InvalidValue, match="reads 'own_rate', which is computed by trainers"):
        t.get_pserver_program(endpoint)


# -- ports ----------------------------------------------------------------------------------------


def test_the_trainer_waits_for_ports() -> None:
    with socket.socket() as first, socket.socket() as late:
        for each in (first, late):
            each.bind(("127.0.0.1", 0))
        endpoints = [f"127.0.0.1:{s.getsockname()[1]}" for s in (first, late)]
        first.listen()
        threading.Timer(0.3, late.listen).start()
        ports.wait_for_ports(endpoints, 60)


def test_ports_that_never_open_are_named() -> None:
    with socket.socket() as closed:
        closed.bind(("127.0.0.1", 0))
        endpoint = f"127.0.0.1:{closed.getsockname()[1]}"
        with pytest.raises(ServerLost, match=f"{endpoint} after 0.1 s.*wait_port=False"):
            ports.wait_for_ports([endpoint], 0.1)


def test_who_waits_can_be_registered(monkeypatch: pytest.MonkeyPatch) -> None:
    calls: list[Any] = []
    monkeypatch.setattr(ports, "_waiters", [])
    ports.register_waiter(lambda endpoints, within: calls.append((list(endpoints), within)))
    wait_server_ready(SERVERS, 5)
    t, _, _ = transpiled()
    t.get_trainer_program()
    t.get_trainer_program(wait_port=False)
    t.config.wait_port = False
    t.get_trainer_program()
    assert calls == [(SERVERS, 5), (SERVERS, None)]
