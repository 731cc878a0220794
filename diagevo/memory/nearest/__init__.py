"""The nearest causes and nodes. Imports vectors and the state."""
