"""A replica program and the shapes of a batch become instructions on memory, and run.

Start at ``bind.py`` ``Binder`` and ``plan.py`` ``Plan.run``. A binder takes the part of a rank (``part.py``),
places values (``memory.py``), orders instructions (``dependencies.py``) and makes their calls
(``emission.py``). ``run.py`` deals instructions to threads, ``cuda_plan.py`` captures them as graphs of a GPU,
``binding_cache.py`` holds what plans of one program share, ``resized.py`` binds it for other sizes.

* Shapes: ``shapes.py`` ``Shapes`` infers the specs of all values of a segment, node by node
  (``node_shapes.py``); all follow from a few numbers (``sizes.py``).
* Temporaries: ``graph/lowering/memory.py`` says how long each value is needed (``Usage``) and where it lies
  (``plan_memory``): in place of an operand that is needed no more, as a view, or in memory that is used
  again. A replica's plans share one arena, and one scratch region a lane (``executor/host/arena.py``
  ``Memory``): address space whose pages come when touched. With several lanes a storage lasts until all
  that follows waits for its users (``executor/plan/run.py`` ``last_concurrent``). Gradients lie side by side in
  their bucket (``executor/plan/buckets.py`` ``Buckets``), which is the group's memory
  (``executor/plan/group.py`` ``CollectiveGroup``); ``executor/plan/collectives.py`` makes the calls on them.
* What plans of one program share, so that a new shape is bound quickly: ``executor/plan/binding_cache.py``
  (inferred shapes, how long values are needed, instructions by the places of what they touch: where steps are
  uneven, values stay at their offsets while there is room, ``Sharing.layout``). A ``Resizer``
  (``executor/plan/resized.py``) makes plans on the memory of an earlier one, without placing anything, and its
  ``PlanTemplate`` (``executor/plan/template.py``) without binding: calls of plans differ in numbers that are
  affine functions of sizes (``executor/plan/affine.py``), once a few plans have told them. Calls of compiled
  loops and C functions (``executor/host/foreign.py``) have nothing else; others are made again
  (``executor/plan/remake.py``). What kernels bind to
  scratch memory alone, plans of all programs share (``Device.rebound``), and what formulas were traced for
  (``executor/codegen/array_program.py``). Products whose rows are uneven (``ReplicaProgram.uneven``) compile
  nothing (``executor/kernels/onednn/linear.py``).
  Weights are packed for oneDNN once by programs that change nothing, and again when
  ``executor/host/writes.py`` counted a write.
* Values that are not finite: ``executor/plan/numerics.py`` ``check_numerics``; a program compiled while it
  is on looks at what each op made (``ReplicaProgram.checked``), before the vote. What happened is said by
  ``strategies/log.py`` ``log``.
"""
