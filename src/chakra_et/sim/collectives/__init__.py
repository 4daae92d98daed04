"""Algorithms of collectives: latency and loads on links."""
