"""The fold: what the events make of a memory, and what follows from it. Events and the log come in."""
