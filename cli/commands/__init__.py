"""The commands, one file per noun: parse, one call, a screen. They may import all of `cli` but `main`."""
