"""Programs, their operators, and the compiler. Imports NumPy, but no device library and no Ray."""
