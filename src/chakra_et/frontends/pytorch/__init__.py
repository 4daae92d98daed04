"""PyTorch: execution traces (host operators, no times) and Kineto profiles (times, device activities)."""
