"""Untrusted text, and numbers in readable form."""
