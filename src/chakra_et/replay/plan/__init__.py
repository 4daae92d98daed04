"""The pure planner: a trace to steps, tensors and iterations, and a check that the plans of all ranks meet."""
