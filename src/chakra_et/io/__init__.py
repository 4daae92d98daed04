"""Reading and writing traces: `.et`, JSON and Parquet behind one table of formats."""

from __future__ import annotations

from chakra_et.io._files import read_bytes, write_atomic
from chakra_et.io.formats import FORMATS, Format, read, read_set, write, write_set

__all__ = ["FORMATS", "Format", "read", "read_bytes", "read_set", "write", "write_atomic", "write_set"]
