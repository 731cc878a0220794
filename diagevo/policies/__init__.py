"""Policies from the literature, to be named in a configuration and to begin one's own from."""
