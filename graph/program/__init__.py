"""Programs as users build them, and as Paddle's files hold them (``formats/``).

Start at ``graph/program/block.py`` ``Block``: it owns operators and variables, and ``ProgramBlocks`` the
blocks. Copies (``clone.py``) and files (``formats/``) stand above these, ``graph/program/program.py``
``Program`` above all.

* Numbers of an op given as variables (``Op.numbers``): ``graph/program/operator.py`` ``resolve_numbers`` makes
  attributes of them where the program knows their values (``graph/program/known.py``);
  ``graph/layers/numbers.py`` takes them from users.
* Images with channels last (``data_format``): kernels get NCHW views,
  ``executor/kernels/array/channels_last.py``.
"""
