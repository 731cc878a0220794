"""Runs a model's programs in a process that can do nothing but compute."""
