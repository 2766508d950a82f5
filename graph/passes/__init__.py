"""Graph passes: pure functions from a graph to a graph. ``graph/pipeline.py`` says in which order.

* Attention and feed-forward blocks: found in ``graph/passes/fused_attention.py`` (and the views around,
  ``attention_layout.py``) and ``fused_feedforward.py``, on paths that ``path.py`` follows forward and back;
  computed block by block in ``executor/kernels/array/attention.py`` and ``feedforward.py``.
  ``benchmarks/switches.py`` prints time and bytes.
* A compiler pass: ``graph/passes/``, and one entry in ``graph/pipeline.py``. Fusions share
  ``graph/passes/match.py`` ``GraphRewriter``: the readers of a value, whether it may vanish (fetched names are
  in ``Target.fetches``), where the fused op may stand, and the reasons that ``explain()`` prints.
  ``tests/graph/random_nets.py`` draws programs to try a pass on.
* Fused ops: ``graph/ops/fused_activation.py``, ``fused_norm.py``, ``fused_linear.py``; kernels under the
  same names.
* Reducing gradients: ``graph/passes/collectives.py`` (AllReduce, Reduce, buckets), ``place_updates.py``
  (owners), ``order.py`` (delay, barrier, numbering), ``sync_batch_norm.py``, ``scale_loss_gradient.py``.
* Regions for a compiler: ``graph/passes/build_cinn_pass.py`` groups nodes, ``graph/ops/region.py`` holds
  them as data, ``executor/kernels/xla/`` compiles them (an op's lowering is in ``nn.py``, ``arrays.py`` or
  ``updates.py`` there), and ``executor/kernels/array/region.py`` runs them by their own kernels where there
  is no compiler.
* All or nothing: ``graph/passes/commit.py`` orders a step so that nothing lasting is written before the
  last collective, the vote. ``executor/plan/plan.py`` ``Vote`` knows how far a replica is. Before it votes,
  a replica posts the fetches that it has already (``Replica.post``), so that none of a committed step is lost
  with it.
* Alike or not: ``graph/passes/replicated.py`` ``replicated`` finds the values that all replicas have with the
  same bits (``ValueRecord.alike``); ``commit.py`` computes fetches of other values before the vote. The
  driver stores persistables of a place (its statistics) in ``executor/gang/place_values.py`` ``PlaceValues``.
"""
