"""Functions of ``paddle`` 2.x that are made of the layers in ``graph/layers``, one file a family."""
