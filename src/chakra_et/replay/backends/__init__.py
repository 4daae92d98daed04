"""What runs a plan on a machine: torch's operators and tensors, and who communicates."""
