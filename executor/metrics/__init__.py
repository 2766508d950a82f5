"""Metrics that are summed up on the host, and those that a program computes step by step."""
