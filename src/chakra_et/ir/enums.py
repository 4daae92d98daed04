"""Enumerations of the Chakra schema, with its spelling and numbers."""

from __future__ import annotations

from enum import IntEnum

__all__ = ["CommType", "NodeType"]


class NodeType(IntEnum):
    """Node types; the numbers are those on the wire."""

    INVALID_NODE = 0
    METADATA_NODE = 1
    MEM_LOAD_NODE = 2
    MEM_STORE_NODE = 3
    COMP_NODE = 4
    COMM_SEND_NODE = 5
    COMM_RECV_NODE = 6
    COMM_COLL_NODE = 7


class CommType(IntEnum):
    """Collective types (``CollectiveCommType``); the numbers are those on the wire."""

    ALL_REDUCE = 0
    REDUCE = 1
    ALL_GATHER = 2
    GATHER = 3
    SCATTER = 4
    BROADCAST = 5
    ALL_TO_ALL = 6
    REDUCE_SCATTER = 7
    REDUCE_SCATTER_BLOCK = 8
    BARRIER = 9
