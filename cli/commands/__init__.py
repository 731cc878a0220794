"""The commands, a file a noun: parse, one call, a screen. Everything of `cli` comes in but `main`."""
