"""Readers of what profilers and compilers write."""
