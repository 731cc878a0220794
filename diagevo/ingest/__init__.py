"""Rollouts of trainers that know nothing of DiagEvo: read from their files, kept in the log, diagnosed later.
Files are stable where hooks are not. `formats` reads them, a step at a time; `session` takes them into a run;
`recording` keeps each group of a prompt's rollouts as an event; `rounds` opens a round with the waiting
groups, and decides which causes a recurring prompt aims at.
"""
