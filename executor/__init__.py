"""How a compiled graph is computed inside one process."""
