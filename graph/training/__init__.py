"""From a forward program to a training program: gradients, clipping, schedules, optimizers, precision.

Start at ``optimizer/base.py`` ``Optimizer.minimize``, which calls ``backward.py`` ``append_backward``.
"""
