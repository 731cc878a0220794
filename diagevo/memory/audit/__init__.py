"""Questions that a log answers, read-only: everything of the memory comes in but `transfer`."""
