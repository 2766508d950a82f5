"""Turn scalar expressions and formulas into array calls, compiled loops and CUDA C++.

* Compiled loops: ``executor/codegen/loops.py`` ``bind_loop`` makes one loop of several expressions (their
  source in ``executor/codegen/scalar_source.py``, functions in ``executor/codegen/scalar_math.py``),
  ``executor/codegen/native.py`` ``launch`` a call of it: object code that LLVM made
  (``executor/codegen/compiler.py``) of text in its language (``executor/codegen/translation.py``). The kernels
  of ``executor/kernels/loops/`` use them.
* The same expressions on a GPU: ``executor/codegen/cuda_loops.py`` ``bind_cuda`` (which loops, in
  ``cuda_nest.py``; the kernel's text, in ``cuda_text.py``; an expression's, in ``cuda_source.py``). What
  ``executor/kernels/loops/elementwise.py`` registers for LLVM, it registers for
  ``executor/kernels/cuda/elementwise.py`` ``CUDA`` too.
* And as calls of NumPy or CuPy: ``executor/codegen/array_calls.py`` ``bind_calls``, in the order of
  ``array_schedule.py``. A formula is traced by ``formula_trace.py``, cut into such loops and calls by
  ``term_schedule.py``, and bound by ``array_program.py``.
"""
