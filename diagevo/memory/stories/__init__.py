"""The history of a cause, a node, a question or a failure, and its wording."""
