"""Geo-SGD: trainers update on their own, and send every so often by how much their parameters changed.

A server adds what comes: the variable ``<parameter>.delta`` is the change, by rows for tables. The last
operator of a trainer's program, ``send``, ends a step, and names the ids that were looked up; that of its
startup program notes the parameters as they are.
"""

from __future__ import annotations

from ...strategies.types import VarType
from ..program.block import Block
from ..program.clone import copy_program
from ..program.program import Program
from ..program.role import ROLE
from .config import DistributeTranspilerConfig
from .placement import LOOKUPS, Shard, Trained, looked_up, place, updated_parameters
from .plan import Distribution, Plan
from .rewriting import append, control_variable, copy_variable
from .server import THREADS
from .server_startup import write_server_startup
from .topology import Topology
from .trainer import declare_shards, mark_rows, write_startup

_PARAM_INIT = "param_init"


def rewrite(
    config: DistributeTranspilerConfig, main: Program, startup: Program, topology: Topology
) -> Plan:
    """Have a program tell of every step, and its startup program receive parameters from the servers."""
    source, startup_source = copy_program(main), copy_program(startup)
    trained = updated_parameters(source, updated_here=True)
    tables = looked_up(source)
    for entry in trained:
        entry.sparse = entry.sparse and entry.parameter.name in tables
    dealt = place(trained, config, topology.endpoints, main.random_seed)
    _write_main(main, topology, trained)
    _write_startup(startup, topology, trained)
    main.distribution = startup.distribution = Distribution.of(topology, trained)
    main._endpoints = topology.endpoints
    return Plan(topology, trained, dealt, main, startup, source, startup_source)


def _write_main(main: Program, topology: Topology, trained: list[Trained]) -> None:
    block = main.global_block()
    tables = {entry.parameter.name for entry in trained if entry.sparse}
    ids, names = [], []
    for op in block.ops:
        if op.type in LOOKUPS and op.input("W")[0] in tables:
            op.set_attr("remote_prefetch", False)
            ids += op.input("Ids")
            names += op.input("W")
    mark_rows(main, updated_here=True)
    for entry in trained:
        declare_shards(block, entry)
        _declare_change(block, entry, entry.parameter.name, entry.parameter.shape or ())
        for shard in entry.shards if entry.split else ():
            _declare_change(block, entry, shard.parameter, shard.shape)
    _tell(block, ids, names, topology)


def _write_startup(startup: Program, topology: Topology, trained: list[Trained]) -> None:
    write_startup(startup, topology, [entry for entry in trained if not entry.sparse])
    block = startup.global_block()
    for entry in trained:
        _declare_change(block, entry, entry.parameter.name, entry.parameter.shape or ())
    block.create_var(name=_PARAM_INIT)
    _tell(block, [_PARAM_INIT], [_PARAM_INIT], topology)


def _tell(block: Block, inputs: list[str], names: list[str], topology: Topology) -> None:
    slots = ({"X": inputs}, {"Out": control_variable(block)})
    append(
        block, "send", slots, {"send_varnames": names, "trainer_id": topology.trainer_id}, role=0
    )


def _declare_change(block: Block, entry: Trained, name: str, shape: tuple[int, ...]) -> None:
    parameter = entry.parameter
    change = copy_variable(block, parameter, name=f"{name}.delta", shape=shape, persistable=False)
    if entry.sparse:
        change.desc.set_type(VarType.SELECTED_ROWS)


def write_server(plan: Plan, endpoint: str) -> tuple[Program, Program]:
    """Return the program of a server, which adds changes to parameters, and its startup program."""
    server = Program()
    server.random_seed = plan.main.random_seed
    served = [(e, s) for e in plan.trained for s in e.shards if s.endpoint == endpoint]
    for entry, shard in served:
        copy_variable(
            server.global_block(), entry.parameter, name=shard.parameter, shape=shard.shape
        )
    bodies = [_add(server, entry, shard) for entry, shard in served]
    changes = [f"{shard.parameter}.delta" for _, shard in served]
    blocks = zip(changes, bodies, strict=True)
    tables = [shard.parameter for entry, shard in served if entry.sparse]
    append(
        server.global_block(),
        "listen_and_serv",
        ({"X": []}, {}),
        {
            "endpoint": endpoint,
            "Fanin": plan.topology.trainers,
            "optimize_blocks": bodies,
            "grad_to_block_id": [f"{change}:{body.idx}" for change, body in blocks],
            "sparse_grad_to_param": [f"{name}.delta:{name}" for name in tables],
            "distributed_mode": int(plan.topology.server_mode),
            **dict.fromkeys(THREADS, 12),
            ROLE: 0,
        },
    )
    return server, write_server_startup(server, plan, endpoint)


def _add(server: Program, entry: Trained, shard: Shard) -> Block:
    _declare_change(server.global_block(), entry, shard.parameter, shard.shape)
    body = server._create_block(0)
    server.current_block_idx = 0
    slots = ({"X": [shard.parameter, f"{shard.parameter}.delta"]}, {"Out": shard.parameter})
    append(body, "sum", slots, {}, role=0)
    return body
