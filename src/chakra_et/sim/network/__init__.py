"""Networks: what a communication costs, and which links it shares with others."""
