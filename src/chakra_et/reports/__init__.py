"""Reports: traces drawn for other programs and for people."""
