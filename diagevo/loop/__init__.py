"""The loop: a run, its rounds and stages, and their roles."""
