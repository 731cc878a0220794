"""Reading an answer and comparing it with another.

Works on texts, and imports nothing of DiagEvo but its errors.
"""
