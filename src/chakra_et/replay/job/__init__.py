"""All ranks of a replay: planned and checked together, started, and summed up."""
