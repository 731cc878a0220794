"""Integrations with other trainers, which a memory observes or steers."""
