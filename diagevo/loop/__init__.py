"""The loop: a run, its rounds and stages, and who plays in them."""
