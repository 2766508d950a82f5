"""Every op against its reference, its declaration and Paddle.

* What Paddle 1.8.5 computes off the defaults of every op: ``tests/reference/op_cases/``, made by
  ``generate_op_cases.py`` above it, replayed by ``tests/ops/test_paddle_cases.py``.
"""
