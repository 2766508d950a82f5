"""The GPU back end: what it asks of a GPU, a real one and one that is simulated on the host."""
