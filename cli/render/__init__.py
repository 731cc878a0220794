"""How anything is printed: a console, rows, tables, layout.

It may import the options, but nothing that knows a memory.
"""
