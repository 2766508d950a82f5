"""Kernels in CUDA C++, generated for the shapes at hand, by family.

* Reductions and norms of a GPU: ``executor/cuda/source/reduce.cuh`` joins values of warps, blocks, rows and
  columns (``norm.cuh``, ``softmax.cuh``, ``choice.cuh`` are written with it);
  ``executor/kernels/cuda/rows.py`` cuts the work, by shapes alone, so that sums have the same bits on every
  GPU. ``tests/ops/cuda_cases.py`` holds kernels to samples.
* Generated kernels of a GPU that move and pick elements: copies between any strides in
  ``executor/kernels/cuda/copies.py``, rows added up by index in ``executor/kernels/cuda/by_index.py``
  (sorted, so that sums have one order), pooling in ``executor/kernels/cuda/pool.py``. Loops over the steps of
  sequences in one launch: ``executor/kernels/cuda/time_steps.py``. Updates, many
  parameters in one launch: ``executor/kernels/cuda/optimize.py``. Pools over regions:
  ``executor/kernels/cuda/region_pool.py``.
"""
