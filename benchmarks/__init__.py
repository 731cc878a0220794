"""`python -m benchmarks`: every figure of speed, each beside its reference of the same run, in CPU
time."""
