"""Predict with a saved model, through the classes of Paddle's inference library.

``config.py`` says which model runs where, ``predictor.py`` loads it into a scope of its own and runs it on an
``Executor``, ``tensors.py`` holds what goes in and comes out.
"""
