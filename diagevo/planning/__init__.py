"""The resources of a run: GPU memory, hours, disk."""
