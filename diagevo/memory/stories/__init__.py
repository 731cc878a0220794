"""What the history of a cause, a node, a question or a failure is, and how it is worded."""
