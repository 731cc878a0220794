"""Logs carried somewhere else: bundles, forks, backups, and projections made again."""
