"""Programs of trainers that meet without servers: in a group of ParallelExecutors, or by collectives.

In mode "nccl2" only the startup program changes: trainers agree on a group, in which their ParallelExecutors
(``num_trainers``, ``trainer_id``) meet. In mode "collective" the program itself holds the collectives, in as
many rings as ``nccl_comm_num`` says: they take turns, so that several are under way at a time. Trainers wait
for each other where they meet, not here.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from ...strategies.endpoints import checked_endpoints
from ...strategies.errors import InvalidArgument, InvalidType, InvalidValue, Unsupported, nearest
from ...strategies.types import VarType
from ..program import unique_name
from ..program.block import Block
from ..program.program import Program
from ..program.role import ROLE_VAR, OpRole
from ..program.variable import Variable
from .config import COLLECTIVE_MODES, DistributeTranspilerConfig
from .placement import is_update
from .rewriting import append, copy_variable, insert

BACKWARD, OPTIMIZE = int(OpRole.Backward), int(OpRole.Optimize)
_LOSS_GRADIENT = BACKWARD | int(OpRole.Loss)


def write_nccl2(
    config: DistributeTranspilerConfig,
    main: Program,
    startup: Program,
    trainer_id: Any,
    trainers: Any,
    current_endpoint: str,
) -> None:
    """Have trainers agree on a group in the startup program; note their endpoints in the program.

    Raises:
        InvalidArgument: endpoints are no text, or the hierarchy does not fit their number.
        InvalidValue: this trainer is none of them.
    """
    if not isinstance(trainers, str):
        raise InvalidArgument(
            f'transpile: in mode "nccl2" trainers are endpoints, "host:port,host:port", got {trainers!r}.'
        )
    endpoints = checked_endpoints("transpile: trainers", trainers)
    _check_member(endpoints, trainer_id, current_endpoint)
    inner = config.hierarchical_allreduce_inter_nranks
    if config.use_hierarchical_allreduce:
        _check_hierarchy(len(endpoints), inner)
    main._trainers_endpoints = endpoints
    main._nccl_comm_num = config.nccl_comm_num
    main._use_hierarchical_allreduce = config.use_hierarchical_allreduce
    main._hierarchical_allreduce_inter_nranks = inner
    block = startup.global_block()
    names = ["NCCLID", *(f"NCCLID_{k}" for k in range(1, config.nccl_comm_num))]
    if config.use_hierarchical_allreduce:
        for k in range(config.nccl_comm_num):
            names += [f"Hierarchical_inter_NCCLID_{k}", f"Hierarchical_exter_NCCLID_{k}"]
    for name in names:
        block.create_var(name=name, persistable=True, type=VarType.RAW)
    attrs = {
        "trainers": endpoints,
        "trainer_id": trainer_id,
        "nccl_comm_num": config.nccl_comm_num,
        "use_hierarchical_allreduce": config.use_hierarchical_allreduce,
        "hierarchical_allreduce_inter_nranks": inner,
    }
    append(block, "gen_nccl_id", ({}, {"NCCLID": names[0]}), attrs, role=0)


def rewrite(
    config: DistributeTranspilerConfig,
    main: Program,
    startup: Program,
    trainer_id: Any,
    trainers: Any,
    current_endpoint: str,
) -> None:
    """Put collectives into a program, and what begins them into its startup program.

    Raises:
        InvalidType, InvalidValue: endpoints, rank or mode cannot work.
    """
    if not isinstance(trainers, (str, list, tuple)):
        raise InvalidType(
            f'transpile: in mode "collective" trainers are endpoints, "host:port,host:port" or a list, got '
            f"{trainers!r}."
        )
    endpoints = checked_endpoints("transpile: trainers", trainers)
    mode = _check_mode(config.collective_mode)
    if len(endpoints) < 2:
        raise InvalidValue(
            f'transpile: in mode "collective" there are at least two trainers, got {endpoints[0]} alone. '
            f"Run the program as it is."
        )
    _check_member(endpoints, trainer_id, current_endpoint)
    kind = GradientAllReduce if mode == "grad_allreduce" else LocalSgd
    kind(main, startup, endpoints, trainer_id, config.nccl_comm_num).run()


def _check_mode(mode: str | None) -> str:
    if mode == "single_process_multi_thread":
        raise Unsupported(
            'transpile: collective_mode "single_process_multi_thread" is what '
            "CompiledProgram(program).with_data_parallel(loss_name) does: call that, and not transpile."
        )
    if mode not in COLLECTIVE_MODES:
        raise InvalidValue(
            f"transpile: config.collective_mode must be one of {', '.join(COLLECTIVE_MODES[:2])}, got {mode!r}."
            f"{nearest(str(mode), COLLECTIVE_MODES)}"
        )
    return str(mode)


def _check_member(endpoints: Sequence[str], trainer_id: Any, current_endpoint: str) -> None:
    if not isinstance(trainer_id, int) or isinstance(trainer_id, bool):
        raise InvalidType(f"transpile: trainer_id must be a whole number, got {trainer_id!r}.")
    if not 0 <= trainer_id < len(endpoints):
        raise InvalidValue(
            f"transpile: trainer_id must be from 0 to {len(endpoints) - 1} (there are {len(endpoints)} "
            f"endpoints of trainers), got {trainer_id}."
        )
    if current_endpoint not in endpoints:
        raise InvalidValue(
            f"transpile: current_endpoint {current_endpoint!r} is none of the trainers' endpoints: "
            f"{', '.join(endpoints)}.{nearest(str(current_endpoint), endpoints)}"
        )
    if endpoints[trainer_id] != current_endpoint:
        raise InvalidValue(
            f"transpile: trainer {trainer_id} has the endpoint {endpoints[trainer_id]}, and current_endpoint "
            f"is {current_endpoint}, that of trainer {endpoints.index(current_endpoint)}."
        )


def _check_hierarchy(trainers: int, inner: int) -> None:
    if inner <= 1 or trainers <= inner or trainers % inner:
        raise InvalidArgument(
            f"transpile: config.hierarchical_allreduce_inter_nranks is how many trainers a host has: more than "
            f"1, fewer than all, and a divisor of their number ({trainers}), got {inner}. It does not follow "
            f"from the GPUs of this host: a trainer may have several."
        )


class _Rewriter:
    """What both modes share: rings, and the startup program. The trainer's number is its rank."""

    def __init__(
        self, main: Program, startup: Program, endpoints: list[str], rank: int, rings: int
    ) -> None:
        self.main, self.startup = main, startup
        self.endpoints, self.rank, self.rings = endpoints, rank, rings
        self._turns = 0

    def run(self) -> None:
        """Rewrite both programs."""
        self._write_startup()
        self._turns = 0
        self._write_main()

    def _write_main(self) -> None:
        raise NotImplementedError

    def _next_ring(self) -> int:
        ring = self._turns % self.rings
        self._turns += 1
        return ring

    def _write_startup(self) -> None:
        block = self.startup.global_block()
        for ring in range(self.rings):
            self._begin_ring(block, ring)
        parameters = self._parameters()
        for parameter in parameters:
            attrs = {"ring_id": self._next_ring(), "root": 0}
            append(block, "c_broadcast", _in_place(parameter.name), attrs, role=0)
        if parameters:
            self._wait(block, len(block.ops), parameters[-1].name, role=0)

    def _parameters(self) -> list[Variable]:
        """Return the parameters. Files do not tell them from other variables: these forward operators read."""
        block = self.startup.global_block()
        ops = [op for op in self.main.global_block().ops if not op.role & (BACKWARD | OPTIMIZE)]
        names = {name for op in ops for name in op.input_arg_names}
        reads = [v for v in block.vars.values() if v.persistable and v.name in names]
        return list(block.all_parameters()) or reads

    def _begin_ring(self, block: Block, ring: int) -> None:
        name = unique_name.generate("nccl_id")
        group = block.create_var(name=name, persistable=True, type=VarType.RAW)
        own = self.endpoints[self.rank]
        others = [endpoint for endpoint in self.endpoints if endpoint != own]
        attrs = {"rank": self.rank, "endpoint": own, "other_endpoints": others}
        append(block, "c_gen_nccl_id", ({}, {"Out": group}), attrs, role=0)
        attrs = {"nranks": len(self.endpoints), "rank": self.rank, "ring_id": ring}
        append(block, "c_comm_init", ({"X": group}, {}), attrs, role=0)

    def _wait(self, block: Block, index: int, name: str, role: int) -> None:
        """Insert what waits for all rings; ``name`` stands for what they reduce."""
        for ring in range(self.rings):
            attrs = {"ring_id": ring}
            insert(block, index + ring, "c_sync_comm_stream", _in_place(name), attrs, role)

    def _add_up(self, block: Block, index: int, name: str, role: int) -> None:
        attrs = {"ring_id": self._next_ring()}
        insert(block, index, "c_allreduce_sum", _in_place(name), attrs, role)


class GradientAllReduce(_Rewriter):
    """Every gradient becomes the mean of all trainers' before it is used."""

    def _write_main(self) -> None:
        block = self.main.global_block()
        last = ""
        for index in reversed(range(len(block.ops))):
            op = block.ops[index]
            pairs = op.attrs.get(ROLE_VAR) or []
            if not op.role & BACKWARD or not pairs:
                continue
            for position, gradient in enumerate(pairs[1::2]):
                if position == 0:
                    insert(
                        block, index + 1, "c_sync_calc_stream", _in_place(gradient), {}, BACKWARD
                    )
                self._add_up(block, index + 2, gradient, BACKWARD)
                last = gradient
        self._scale_loss(block)
        first = next((i for i, op in enumerate(block.ops) if op.role & OPTIMIZE), None)
        if first is not None and last:
            self._wait(block, first, last, BACKWARD)

    def _scale_loss(self, block: Block) -> None:
        share = {"scale": 1.0 / len(self.endpoints)}
        for index in reversed(range(len(block.ops))):
            op = block.ops[index]
            if op.role == _LOSS_GRADIENT:
                name = op.output_arg_names[0]
                insert(block, index + 1, "scale", _in_place(name), share, BACKWARD)


class LocalSgd(_Rewriter):
    """Every trainer updates on its own, and after each step all take the mean of their parameters."""

    def _write_startup(self) -> None:
        super()._write_startup()
        block = self.startup.global_block()
        for parameter in self._parameters():
            snapshot = self._snapshot(block, parameter)
            append(block, "assign", ({"X": parameter}, {"Out": snapshot}), {}, role=0)

    @staticmethod
    def _snapshot(block: Block, parameter: Variable) -> Variable:
        return copy_variable(block, parameter, name=f"{parameter.name}@SNAPSHOT")

    def _write_main(self) -> None:
        block = self.main.global_block()
        updated: list[tuple[str, str]] = []
        for index in reversed(range(len(block.ops))):
            if is_update(block.ops[index]):
                name = block.ops[index].input("Param")[0]
                snapshot = self._snapshot(block, block.var(name)).name
                self._subtract(block, index + 1, snapshot, name)
                insert(block, index + 2, "c_sync_calc_stream", _in_place(name), {}, OPTIMIZE)
                self._add_up(block, index + 3, name, OPTIMIZE)
                updated.append((name, snapshot))
        if updated:
            self._wait(block, len(block.ops), updated[-1][0], OPTIMIZE)
        share = {"scale": 1.0 / len(self.endpoints)}
        for name, snapshot in reversed(updated):
            append(block, "scale", _in_place(name), share, OPTIMIZE)
            self._subtract(block, len(block.ops), snapshot, name)
            append(block, "assign", ({"X": name}, {"Out": snapshot}), {}, OPTIMIZE)

    @staticmethod
    def _subtract(block: Block, index: int, snapshot: str, name: str) -> None:
        slots = ({"X": snapshot, "Y": name}, {"Out": name})
        insert(block, index, "elementwise_sub", slots, {}, OPTIMIZE)


def _in_place(name: str) -> tuple[dict[str, Any], dict[str, Any]]:
    return {"X": name}, {"Out": name}
