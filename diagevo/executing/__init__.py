"""Programs that a model wrote, run in a process that can do nothing but compute."""
