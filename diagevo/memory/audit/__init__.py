"""Read-only queries of a log. May import everything in the memory but `transfer`."""
