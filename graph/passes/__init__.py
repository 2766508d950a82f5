"""Graph passes: pure functions from a graph to a graph. ``graph/pipeline.py`` says in which order."""
