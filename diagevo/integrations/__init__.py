"""Trainers that are not ours, steered by a memory."""
