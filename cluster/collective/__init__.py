"""How the replicas' arrays meet: groups of ranks on one host, joined by shared memory.

* Collectives: sums block by block, low precision in float32, in ``cluster/collective/combine.py``; who came
  for what, deaths and aborts of a host in ``cluster/collective/rendezvous.py``, between hosts in
  ``cluster/collective/abort_channel.py``; shared memory in ``cluster/collective/buffers.py``; connections
  in ``cluster/primitives/wire.py`` (callers prove themselves as in ``cluster/primitives/doorway.py``). Which
  kind of group: ``cluster/collective/backends`` ``form_group`` (what ranks tell each other meanwhile:
  ``cluster/collective/forming.py``); Ray's own GLOO and NCCL in ``cluster/collective/ray_groups.py``.
* Collectives on GPUs: ``cluster/collective/nccl.py`` ``NcclGroup`` (who is here, deadlines, aborts), its
  calls in ``cluster/collective/nccl_calls.py``, its communicator in ``cluster/collective/communicator.py``.
  They run beside the backward pass by ``executor/cuda/runtime.py`` ``fork``; where they are waited for,
  ``executor/plan/cuda_plan.py`` ``_with_joins`` decides. By way of the host: ``executor/gang/staged.py``.
  ``executor/simulated/nccl.py`` stands in for NCCL on simulated GPUs.
"""
