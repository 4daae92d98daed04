"""Reading and writing traces: `.et`, JSON and Parquet behind one table of formats."""

from __future__ import annotations

from chakra_et.io._files import (
    list_paths,
    read_bytes,
    read_head,
    refuse_existing,
    refuse_no_folder,
    write_atomic,
)
from chakra_et.io.attributes import attribute_values
from chakra_et.io.formats import FORMATS, Format, read, read_set, write, write_set

__all__ = [
    "FORMATS",
    "Format",
    "attribute_values",
    "list_paths",
    "read",
    "read_bytes",
    "read_head",
    "read_set",
    "refuse_existing",
    "refuse_no_folder",
    "write",
    "write_atomic",
    "write_set",
]
