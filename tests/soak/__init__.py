"""Many programs in one process: nothing that it holds may grow with their number."""
