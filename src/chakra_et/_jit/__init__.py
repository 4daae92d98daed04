"""Compiled loops: arrays in, arrays out, no policy. Nothing here knows a trace or a file format."""
