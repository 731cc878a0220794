"""Reading an answer and comparing it with another: texts come in, nothing else of DiagEvo but its errors."""
