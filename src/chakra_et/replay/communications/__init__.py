"""What a trace communicates, as calls that a replay can make, on as many ranks as it has."""
