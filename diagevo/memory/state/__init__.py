"""The fold: the memory that the events make, and what follows from it. Imports events and the log."""
