"""The study of the arithmetic world: three plans, the results of their runs, and the page made from those."""
