"""Ops that trainers and parameter servers exchange values by, and those that cut and join such values.

They are messages, not arithmetic: no kernel computes them, and ``registry.MESSAGE_OPS`` lists them apart.
Slots, attributes and defaults are Paddle's. Their results have the shapes that the program rewriter declares.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from .lod import no_sequences
from .operands import Input, Inputs, Operands, Output, Outputs, named
from .registry import MESSAGE_OPS, Op
from .rules import as_declared

DEFAULT_ENDPOINTS = ["127.0.0.1:6164"]


class Send(Operands):
    """``epmap`` has the endpoint of each X; with ``sections`` X is cut by rows under ``send_varnames``."""

    x: Inputs | None
    out: Outputs
    trainer_id: int = 0
    epmap: Sequence[str] = DEFAULT_ENDPOINTS
    sections: Sequence[int] = []
    send_varnames: Sequence[str] = []
    num: int = 0
    merge_add: bool = False
    use_send_handler: bool = True


class Recv(Operands):
    """``epmap`` has the endpoint of each Out; with ``recv_varnames`` Out is joined from those variables."""

    x: Inputs | None
    out: Outputs
    epmap: Sequence[str] = []
    trainer_id: int = 0
    with_barrier: bool = True
    varnames: Sequence[str] = []
    recv_varnames: Sequence[str] = []
    do_not_run: int = 0


class FetchBarrier(Operands):
    x: Inputs | None
    out: Outputs
    trainer_id: int = 0
    endpoints: Sequence[str] = DEFAULT_ENDPOINTS


class SendBarrier(Operands):
    x: Inputs | None
    out: Outputs
    trainer_id: int = 0
    endpoints: Sequence[str] = DEFAULT_ENDPOINTS
    half_async: bool = False


class ListenAndServ(Operands):
    x: Inputs | None
    endpoint: str = DEFAULT_ENDPOINTS[0]
    pserver_id: int = -1
    grad_to_block_id: Sequence[str] = []
    distributed_mode: int = 0
    dc_asgd: bool = False
    optimize_blocks: Sequence[Any] = []
    prefetch_var_name_to_block_id: Sequence[str] = []
    sparse_grad_to_param: Sequence[str] = []
    Fanin: int = 1
    checkpint_block_id: int = -1
    lr_decay_block_id: int = -1
    rpc_get_thread_num: int = 1
    rpc_send_thread_num: int = 1
    rpc_prefetch_thread_num: int = 1


class SplitByref(Operands):
    x: Input
    out: Outputs
    sections: Sequence[int] = []
    num: int = 0


class SplitSelectedRows(Operands):
    x: Input
    out: Outputs
    height_sections: Sequence[int] = []


class FakeInit(Operands):
    """Declares a table of this shape without memory for it: only servers hold its rows."""

    out: Output
    shape: Sequence[int] = []


class CheckpointNotify(Operands):
    epmap: Sequence[str] = DEFAULT_ENDPOINTS
    dir: str = ""
    lookup_table: str = ""
    trainer_id: int = 0


class RefByTrainerId(Operands):
    x: Inputs
    trainer_id: Input
    out: Output


class SplitIds(Operands):
    ids: Inputs
    out: Outputs


class MergeIds(Operands):
    ids: Inputs
    rows: Inputs
    x: Inputs
    out: Outputs


class Prefetch(Operands):
    x: Inputs
    out: Outputs
    trainer_id: int = 0
    epmap: Sequence[str] = DEFAULT_ENDPOINTS


class LookupSparseTable(Operands):
    w: Input
    ids: Input
    out: Output
    padding_idx: int = -1
    auto_grown_table: bool = True
    is_test: bool = False


class DistributedLookupTable(Operands):
    ids: Inputs
    w: Input
    outputs: Outputs
    table_names: Sequence[str] = [""]
    height_sections: Sequence[int] = []
    endpoints: Sequence[str] = DEFAULT_ENDPOINTS
    trainer_id: int = 0
    lookup_table_version: str = "lookup_table"
    padding_idx: int = -1
    dtype: int = 5


class RecvSave(Operands):
    dtype: int = 5
    overwrite: bool = True
    file_path: str = ""
    shape: Sequence[int] = []
    slice_varnames: Sequence[str] = []
    remote_varnames: Sequence[str] = []
    slice_shapes: Sequence[str] = []
    endpoints: Sequence[str] = []
    trainer_id: int = 0


class Save(Operands):
    x: Input
    lookup_table_path: Output | None = named("kLookupTablePath")
    overwrite: bool = True
    save_as_fp16: bool = False
    file_path: str = ""


class DeleteVar(Operands):
    """Ends the life of variables that nothing reads behind it."""

    x: Inputs


for _type, _record in (
    ("send", Send),
    ("recv", Recv),
    ("send_barrier", SendBarrier),
    ("fetch_barrier", FetchBarrier),
    ("listen_and_serv", ListenAndServ),
    ("split_byref", SplitByref),
    ("split_selected_rows", SplitSelectedRows),
    ("fake_init", FakeInit),
    ("checkpoint_notify", CheckpointNotify),
    ("ref_by_trainer_id", RefByTrainerId),
    ("split_ids", SplitIds),
    ("merge_ids", MergeIds),
    ("prefetch", Prefetch),
    ("lookup_sparse_table", LookupSparseTable),
    ("distributed_lookup_table", DistributedLookupTable),
    ("recv_save", RecvSave),
    ("save", Save),
    ("delete_var", DeleteVar),
):
    MESSAGE_OPS[_type] = Op(_type, _record, as_declared, lod=no_sequences)
