"""Ops that trainers and parameter servers exchange values by, and those that cut and join such values.

They are messages, not arithmetic: no kernel computes them, and ``registry.MESSAGE_OPS`` lists them apart.
Slots, attributes and defaults are Paddle's. Their results have the shapes that the program rewriter declares.
"""

from __future__ import annotations

from .lod import no_sequences
from .operands import Operands, record_of
from .registry import define_message
from .rules import as_declared

DEFAULT_ENDPOINTS = ["127.0.0.1:6164"]


def _declare(type: str, record: type[Operands]) -> None:
    define_message(type, record, as_declared, lod=no_sequences)


# ``epmap`` has the endpoint of each X; with ``sections`` X is cut by rows under ``send_varnames``.
_declare(
    "send",
    record_of(
        "x*?",
        "out*",
        trainer_id=0,
        epmap=DEFAULT_ENDPOINTS,
        sections=[],
        send_varnames=[],
        num=0,
        merge_add=False,
        use_send_handler=True,
    ),
)
# ``epmap`` has the endpoint of each Out; with ``recv_varnames`` Out is joined from those variables.
_declare(
    "recv",
    record_of(
        "x*?",
        "out*",
        epmap=[],
        trainer_id=0,
        with_barrier=True,
        varnames=[],
        recv_varnames=[],
        do_not_run=0,
    ),
)
_WAIT = {"trainer_id": 0, "endpoints": DEFAULT_ENDPOINTS}
_declare("send_barrier", record_of("x*?", "out*", **_WAIT, half_async=False))
_declare("fetch_barrier", record_of("x*?", "out*", **_WAIT))
_declare(
    "listen_and_serv",
    record_of(
        "x*?",
        endpoint=DEFAULT_ENDPOINTS[0],
        pserver_id=-1,
        grad_to_block_id=[],
        distributed_mode=0,
        dc_asgd=False,
        optimize_blocks=[],
        prefetch_var_name_to_block_id=[],
        sparse_grad_to_param=[],
        Fanin=1,
        checkpint_block_id=-1,
        lr_decay_block_id=-1,
        rpc_get_thread_num=1,
        rpc_send_thread_num=1,
        rpc_prefetch_thread_num=1,
    ),
)
_declare("split_byref", record_of("x", "out*", sections=[], num=0))
_declare("split_selected_rows", record_of("x", "out*", height_sections=[]))
# Declares a table of this shape without memory for it: only servers hold its rows.
_declare("fake_init", record_of("", "out", shape=[]))
_declare(
    "checkpoint_notify",
    record_of("", epmap=DEFAULT_ENDPOINTS, dir="", lookup_table="", trainer_id=0),
)
_declare("ref_by_trainer_id", record_of("x* trainer_id", "out"))
_declare("split_ids", record_of("ids*", "out*"))
_declare("merge_ids", record_of("ids* rows* x*", "out*"))
_declare("prefetch", record_of("x*", "out*", trainer_id=0, epmap=DEFAULT_ENDPOINTS))
_declare(
    "lookup_sparse_table",
    record_of("w ids", "out", padding_idx=-1, auto_grown_table=True, is_test=False),
)
_declare(
    "distributed_lookup_table",
    record_of(
        "ids* w",
        "outputs*",
        table_names=[""],
        height_sections=[],
        endpoints=DEFAULT_ENDPOINTS,
        trainer_id=0,
        lookup_table_version="lookup_table",
        padding_idx=-1,
        dtype=5,
    ),
)
_declare(
    "recv_save",
    record_of(
        "",
        dtype=5,
        overwrite=True,
        file_path="",
        shape=[],
        slice_varnames=[],
        remote_varnames=[],
        slice_shapes=[],
        endpoints=[],
        trainer_id=0,
    ),
)
_declare(
    "save",
    record_of(
        "x", "lookup_table_path:kLookupTablePath?", overwrite=True, save_as_fp16=False, file_path=""
    ),
)
_declare("delete_var", record_of("x*"))  # ends the life of variables that nothing reads behind it
