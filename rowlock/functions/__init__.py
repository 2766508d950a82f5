"""Functions of ``paddle`` 2.x, built from the layers in ``graph/layers``, one file a family."""
