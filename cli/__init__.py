"""The program `diagevo`. It may import all of `diagevo` but its tables; nothing imports it."""
