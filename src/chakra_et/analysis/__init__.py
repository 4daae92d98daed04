"""Analysis: where the time of a job goes; one function a question, each with a frozen result."""
