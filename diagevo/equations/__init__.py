"""The paper's equations, one function each, called by the loop and by every audit.

Only pure functions of plain numbers belong here: no log, no configuration, no model, no file.
"""
