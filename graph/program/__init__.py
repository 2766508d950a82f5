"""Programs as users build them, and as Paddle's files hold them (``formats/``).

Start at ``program.py`` ``Program``: it owns blocks, a block its operators and variables.

* Numbers of an op given as variables (``Op.numbers``): ``graph/program/known.py`` ``resolve_numbers`` makes
  attributes of them where the program knows their values; ``graph/layers/numbers.py`` takes them from
  users. Images with channels last (``data_format``): kernels get NCHW views,
  ``executor/kernels/array/channels_last.py``.
"""
