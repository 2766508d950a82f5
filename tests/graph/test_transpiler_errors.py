"""What cannot work is refused when DistributeTranspiler is asked, with the reason and the cure."""

from __future__ import annotations

from typing import Any

import pytest

import rowlock.fluid as fluid
from rowlock.fluid.transpiler.distribute_transpiler import DistributedMode
from rowlock.strategies.errors import (
    InvalidArgument,
    InvalidState,
    InvalidType,
    InvalidValue,
    NotFound,
    UnknownField,
    Unsupported,
)
from tests.programs import own_programs

TRAINERS = "10.0.0.1:6170,10.0.0.2:6170"


def settings(**fields: Any) -> fluid.DistributeTranspilerConfig:
    config = fluid.DistributeTranspilerConfig()
    for name, value in fields.items():
        setattr(config, name, value)
    return config


def transpile(config: Any = None, **call: Any) -> fluid.DistributeTranspiler:
    with own_programs() as (main, startup):
        loss = fluid.layers.mean(fluid.layers.fc(fluid.layers.data("x", [4]), 1))
        fluid.optimizer.SGD(0.1).minimize(loss)
    t = fluid.DistributeTranspiler(config)
    t.transpile(**{"trainer_id": 0, "program": main, "startup_program": startup, **call})
    return t


@pytest.mark.parametrize(
    ("field", "value", "error", "text"),
    [
        ("slice_var_up", "yes", InvalidValue, "slice_var_up must be a bool, got 'yes'"),
        ("sync_mode", None, InvalidValue, "sync_mode must be a bool, got None"),
        ("runtime_split_send_recv", None, InvalidValue, "must be a bool, got None"),
        ("runtime_split_send_recv", True, InvalidValue, "Set sync_mode = False first"),
        ("min_block_size", 0.5, InvalidValue, "min_block_size must be a whole number"),
        ("nccl_comm_num", 0, InvalidValue, "nccl_comm_num must be a whole number from 1 on, got 0"),
        ("geo_sgd_need_push_nums", 0, InvalidValue, "must be a whole number from 1 on, got 0"),
        ("mode", "pservers", InvalidValue, "got 'pservers'. Did you mean 'pserver'"),
        ("slice_up", True, UnknownField, "no setting 'slice_up'. Did you mean 'slice_var_up'"),
    ],
)
def test_settings(field: str, value: Any, error: type[Exception], text: str) -> None:
    with pytest.raises(error, match=text):
        settings(**{field: value})


def test_settings_that_do_not_go_together() -> None:
    late = settings(sync_mode=False, runtime_split_send_recv=True)
    with pytest.raises(InvalidValue, match="Set runtime_split_send_recv = False first"):
        late.sync_mode = True
    assert repr(late) == "DistributeTranspilerConfig(sync_mode=False, runtime_split_send_recv=True)"
    assert settings(split_method=fluid.HashName).split_method is fluid.HashName


@pytest.mark.parametrize(
    ("config", "error", "text"),
    [
        ({"min_block_size": 100}, InvalidType, "takes a DistributeTranspilerConfig, got dict"),
        (settings(min_block_size=100), InvalidArgument, "at least 8192 elements.*got 100"),
        (settings(split_method=dict), InvalidArgument, "derived from PSDispatcher.*dict"),
        (settings(split_method="RoundRobin"), InvalidArgument, "derived from PSDispatcher"),
    ],
)
def test_configs(config: Any, error: type[Exception], text: str) -> None:
    with pytest.raises(error, match=text):
        fluid.DistributeTranspiler(config)


@pytest.mark.parametrize(
    ("call", "error", "text"),
    [
        ({"trainer_id": "0"}, InvalidType, "trainer_id must be a whole number, got '0'"),
        (
            {"trainer_id": 2, "trainers": 2},
            InvalidValue,
            r"from 0 to 1 \(there are 2 trainers\), got 2",
        ),
        ({"trainer_id": -1}, InvalidValue, "trainer_id must be from 0 to 0"),
        ({"trainers": 0}, InvalidValue, "trainers must be at least 1, got 0"),
        (
            {"trainers": TRAINERS},
            InvalidType,
            'Endpoints of trainers belong to config.mode = "nccl2"',
        ),
        ({"pservers": ""}, InvalidValue, "is empty: name at least one"),
        ({"pservers": "a:1,b"}, InvalidValue, "pservers .* ports from 1 to 65535, and has 'b'"),
        ({"pservers": "a:70000"}, InvalidValue, "has 'a:70000'"),
        ({"pservers": "a:²"}, InvalidValue, "has 'a:²'"),
        ({"pservers": "tcp://a:80"}, InvalidValue, "has 'tcp://a:80'"),
        ({"pservers": "a:1,b:1,a:1"}, InvalidValue, "'a:1' twice: give each process an endpoint"),
        ({"pservers": 6174}, InvalidType, "must be endpoints, such as .*, got 6174"),
        ({"sync_mode": 1}, InvalidType, "sync_mode must be a bool, got 1"),
        ({"program": "main"}, InvalidType, "program must be a Program, got 'main' \\(str\\)"),
        ({"startup_program": 3}, InvalidType, "startup_program must be a Program, got 3 \\(int\\)"),
    ],
)
def test_calls(call: dict[str, Any], error: type[Exception], text: str) -> None:
    with pytest.raises(error, match=text):
        transpile(**call)


@pytest.mark.parametrize(
    "field", ["runtime_split_send_recv", "enable_dc_asgd", "geo_sgd_mode", "half_async"]
)
def test_asynchronous_settings_in_a_synchronous_call(field: str) -> None:
    config = settings(**{"sync_mode": False, field: True})
    with pytest.raises(InvalidArgument, match=f"config.{field} .*Pass sync_mode=False"):
        transpile(config)
    transpile(config, sync_mode=False)


def test_servers_that_wait_for_trainers_that_do_not() -> None:
    with pytest.raises(InvalidArgument, match="pass sync_mode=True"):
        transpile(settings(completely_not_async=True), sync_mode=False)


def test_getters_before_transpile() -> None:
    t = fluid.DistributeTranspiler()
    for getter in (
        t.get_trainer_program,
        lambda: t.get_pserver_program("a:1"),
        lambda: t.get_startup_program("a:1"),
    ):
        with pytest.raises(InvalidState, match="Call transpile first"):
            getter()


def test_endpoints_that_no_server_has() -> None:
    t = transpile(pservers="10.0.0.1:6174,10.0.0.2:6174")
    with pytest.raises(NotFound, match=r"'10.0.0.2:6175'. Did you mean '10.0.0.2:6174'\?"):
        t.get_pserver_programs("10.0.0.2:6175")
    other = t.get_pserver_program("10.0.0.1:6174")
    with pytest.raises(InvalidArgument, match=r"serves at 10.0.0.1:6174, not at 10.0.0.2:6174"):
        t.get_startup_program("10.0.0.2:6174", other)


def test_rates_that_the_script_steps() -> None:
    import rowlock as paddle

    main, startup = paddle.static.Program(), paddle.static.Program()
    with paddle.static.program_guard(main, startup):
        loss = fluid.layers.mean(fluid.layers.fc(fluid.layers.data("x", [4]), 1))
        rate = paddle.optimizer.lr.ExponentialDecay(0.1, 0.5)
        paddle.optimizer.SGD(rate).minimize(loss)
    with pytest.raises(Unsupported, match=r"Take a schedule of fluid.layers"):
        fluid.DistributeTranspiler().transpile(0, main, startup_program=startup)


@pytest.mark.parametrize(
    ("config", "call", "error", "text"),
    [
        ({"mode": "nccl2"}, {"trainers": 2}, InvalidArgument, "trainers are endpoints"),
        ({"mode": "nccl2"}, {"trainer_id": 2}, InvalidValue, "from 0 to 1"),
        ({"mode": "nccl2"}, {"current_endpoint": "c:1"}, InvalidValue, "'c:1' is none of"),
        ({"mode": "nccl2"}, {"trainer_id": 1}, InvalidValue, "that of trainer 0"),
        (
            {"mode": "nccl2", "use_hierarchical_allreduce": True},
            {},
            InvalidArgument,
            r"a divisor of their number \(2\), got 0",
        ),
        ({"mode": "collective"}, {"trainers": 2}, InvalidType, "are endpoints"),
        ({"mode": "collective"}, {}, InvalidValue, "collective_mode must be one of.*got None"),
        (
            {"mode": "collective", "collective_mode": "grad_all_reduce"},
            {},
            InvalidValue,
            "Did you mean 'grad_allreduce'",
        ),
        (
            {"mode": "collective", "collective_mode": "single_process_multi_thread"},
            {},
            Unsupported,
            "with_data_parallel",
        ),
        (
            {"mode": "collective", "collective_mode": "local_sgd"},
            {"trainers": "10.0.0.1:6170"},
            InvalidValue,
            "at least two trainers.*Run the program as it is",
        ),
    ],
)
def test_modes_without_servers(
    config: dict[str, Any], call: dict[str, Any], error: type[Exception], text: str
) -> None:
    own = {"trainers": TRAINERS, "current_endpoint": "10.0.0.1:6170", **call}
    with pytest.raises(error, match=text):
        transpile(settings(**config), **own)


def test_modes_without_servers_have_no_programs_for_them() -> None:
    t = transpile(settings(mode="nccl2"), trainers=TRAINERS, current_endpoint="10.0.0.1:6170")
    assert t.get_trainer_program()._trainers_endpoints == TRAINERS.split(",")
    with pytest.raises(InvalidState, match="'nccl2', in which there are no servers"):
        t.get_pserver_program("a:1")


def test_modes_of_servers() -> None:
    for fields, call, mode in (
        ({}, {}, DistributedMode.SYNC),
        ({"sync_mode": False}, {"sync_mode": False}, DistributedMode.HALF_ASYNC),
        (
            {"sync_mode": False, "runtime_split_send_recv": True},
            {"sync_mode": False},
            DistributedMode.ASYNC,
        ),
        ({"geo_sgd_mode": True}, {"sync_mode": False}, DistributedMode.GEO),
        # What transpile is told counts; Paddle's servers follow the config alone.
        ({}, {"sync_mode": False}, DistributedMode.HALF_ASYNC),
    ):
        server = transpile(settings(**fields), **call).get_pserver_program("127.0.0.1:6174")
        assert server.global_block().ops[0].attr("distributed_mode") == mode
