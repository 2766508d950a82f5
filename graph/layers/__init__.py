"""Layers: functions that append ops, one file a family."""
