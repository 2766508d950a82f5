"""The GPU back end: the protocol of a GPU, and a real one behind it.

* GPUs: everything is written against ``executor/cuda/runtime.py``, behind which are
  ``executor/cuda/cupy_runtime.py`` and, on the host, ``executor/simulated/simulated.py`` (which has kernels
  compiled by ``executor/simulated/host_compiler.py``). ``executor/plan/cuda_plan.py`` ``CudaPlan`` captures
  and replays a step, ``executor/cuda/transfers.py`` moves feeds and fetches,
  ``executor/cuda/memory.py`` owns the memory that plans share. Generated kernels (``executor/cuda/kernel.py``
  ``CudaKernel``, text in ``executor/cuda/source/``) are compiled by ``executor/cuda/nvrtc.py``; ops'
  kernels are in ``executor/kernels/cuda/``, ``cublaslt/`` and ``cudnn/`` beside it, by preference in
  ``graph/lowering/select.py``. ``tests/gpu/run.py`` is ``make test-gpu``; ``executor/simulated/null.py``
  ``NullRuntime`` is a GPU that does nothing, to measure the host's time of a step. In words: ``docs/gpu.md``.
"""
