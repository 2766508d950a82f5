"""The driver's side of one program: compile it, check and split feeds, send steps, join what they fetch.

Start at ``parallel.py`` ``ParallelRun``, which owns the steps in flight (``future.py``). It is a
``ProgramOnGang`` (``program_on_gang.py``), which owns the program's compiled variants (``variant.py``), and
shares the gang, and the values on its devices (``values.py``), with other programs. ``program_runs.py`` keeps
the runs of plain programs on one place.

* One engine: a replica on the driver's thread (``executor/gang/local.py`` ``LocalGang``) is called by
  ``local.py`` ``LocalRun`` and works on the scope's own tensors (``SharedValues``); others get messages and
  hold copies (``DeviceValues``). What is compiled, checked, bound, run, joined and told is the same.

* Programs whose steps are as many as what is fed (``StaticRNN``): ``executor/driver/sized.py`` has a copy of
  the program for each size (``graph/program/sizes.py``).
* What a pass broke: ``verify_passes`` lets ``executor/driver/verify.py`` compute each op that a pass made
  on the values that were there before. Pictures: ``graph/report/pictures.py`` in Paddle's words,
  ``graph/report/report.py`` ``to_dot`` after each pass.
* Too much memory: ``executor/driver/budget.py`` ``Budget.check``, before a step is sent; scratch is
  counted by binding without memory (``executor/plan/dry.py``), what a place has is in
  ``executor/host/memory.py``, words in ``graph/report/memory_report.py``.
* What ran when: a replica keeps its last steps while they are traced (``executor/plan/traced.py``); the
  driver adds its own spans, sets clocks right and writes a Chrome trace (``executor/driver/timeline.py``
  ``chrome_trace``).
"""
