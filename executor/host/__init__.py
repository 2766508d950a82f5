"""What this host has: memory, cores, and a folder for compiled code."""
