"""Mixed precision: ops in float16 or bfloat16, and the loss scaling that keeps training stable.

* Mixed precision: lists of ops in ``graph/training/amp/lists.py``, the casts in
  ``graph/training/amp/rewrite.py`` ``rewrite``, of which ``graph/passes/narrow_casts.py`` removes those that
  change no bit, loss scaling in ``graph/training/amp/optimizer.py`` ``MixedPrecision``
  and ``executor/kernels/array/amp.py``, masters in ``executor/kernels/array/masters.py`` ``with_masters``,
  parameters of a scope in ``executor/driver/mixed_precision.py`` ``cast_parameters``; in Reduce mode
  ``graph/passes/split_loss_scaling.py`` ``split_loss_scaling`` leaves gradients at their owners.
"""
