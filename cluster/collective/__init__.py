"""Collectives between replicas. Start at ``executor/plan/group.py`` ``CollectiveGroup``, their base.

* On one host: ``group.py`` ``SharedMemoryGroup`` combines in memory that all ranks map (``buffers.py``), block
  by block, low precision in float32 (``combine.py``). ``rendezvous.py``: ranks wait, differ, die.
* On several hosts: ``hosts.py`` ``HostsGroup`` joins groups of a host by ``inter_host.py``, whose connections
  ``connector.py`` makes (both ends prove themselves as in ``cluster/primitives/doorway.py``); ``stream.py``
  moves rows over them, ``abort_channel.py`` aborts. The headers: ``cluster/primitives/wire.py``.
* On GPUs: ``nccl.py`` ``NcclGroup`` (membership, deadlines, aborts), its calls in ``nccl_calls.py``, its
  communicator in ``communicator.py``. They run beside the backward pass
  (``executor/cuda/runtime.py`` ``Fork``);
  where they are waited for, ``executor/plan/cuda_plan.py`` ``_with_joins`` decides. By way of the host:
  ``executor/gang/staged.py``. ``executor/simulated/nccl.py`` stands in for NCCL on simulated GPUs.
* Which of them: ``backends`` ``form_group`` asks the module that ``ClusterConfig.collectives`` names;
  ``forming.py`` holds what ranks tell each other meanwhile. Ray's own GLOO and NCCL: ``ray_groups.py``.
"""
