"""Rowlock."""
