"""What follows from per-query values: segments and ceilings."""
