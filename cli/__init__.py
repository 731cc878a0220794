"""The program `diagevo`: everything of `diagevo` comes in but its tables, and nothing imports it."""
