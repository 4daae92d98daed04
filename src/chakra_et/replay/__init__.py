"""Running a trace again without its model: a pure planner, a check across ranks, and runners behind backends."""
