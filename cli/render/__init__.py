"""How anything is printed: a console, rows, tables, layout. Options come in, nothing that knows a memory."""
