"""What is to be computed: programs, their operators, and the compiler. Knows NumPy; no device, no Ray."""
