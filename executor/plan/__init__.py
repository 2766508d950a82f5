"""A replica program and the shapes of a batch become instructions on memory, and run.

Start at ``bind.py`` ``Binder`` and ``plan.py`` ``Plan.run``. ``run.py`` deals instructions to threads,
``cuda_plan.py`` captures them as graphs of a GPU, ``shared.py`` holds what the plans of one program have in
common.
"""
