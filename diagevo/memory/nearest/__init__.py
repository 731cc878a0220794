"""The nearest causes and nodes: vectors and the state come in."""
