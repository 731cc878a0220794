"""A run in the browser: pages read from the log, served or written as a folder. May import the memory."""
