"""The paper's equations, one function each, called alike by play and by every audit of it.

What may come in: pure functions of plain numbers. No log, no configuration, no model, no file.
"""
