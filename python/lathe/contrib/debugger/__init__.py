"""Executors that show what happens inside of a model."""
