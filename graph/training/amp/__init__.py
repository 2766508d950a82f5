"""Mixed precision: which ops compute in float16 or bfloat16, and how training stays stable.

* Mixed precision: which ops in ``graph/training/amp/lists.py``, the casts in
  ``graph/training/amp/rewrite.py`` ``rewrite``, what of them changes no bit goes in
  ``graph/passes/narrow_casts.py``, loss scaling in ``graph/training/amp/optimizer.py`` ``MixedPrecision``
  and ``executor/kernels/array/amp.py``, masters in ``executor/kernels/array/masters.py`` ``with_masters``,
  parameters of a scope in ``executor/driver/mixed_precision.py`` ``cast_parameters``; in Reduce mode
  ``graph/passes/split_loss_scaling.py`` ``split_loss_scaling`` leaves gradients at their owners.
"""
