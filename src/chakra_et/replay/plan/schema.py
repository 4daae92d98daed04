"""Operator schemas as traces hold them: what the planner needs to know of a call without torch."""

from __future__ import annotations

import re
from dataclasses import dataclass
from functools import lru_cache

__all__ = ["Parameter", "Schema", "parse_schema"]

_HEAD = re.compile(r"^\s*([A-Za-z_][\w]*::[\w]+)(?:\.([\w]+))?\s*\(")

_TEXTS = re.compile(r"\"(?:\\.|[^\"\\])*\"|'(?:\\.|[^'\\])*'")


@dataclass(frozen=True, slots=True)
class Parameter:
    """One argument of an operator.

    Attributes:
        name: Its name.
        type: Its type as written, without what it aliases (``Tensor?``, ``int[2]``).
        keyword_only: True behind the ``*``.
        written: True if the operator writes to it.
    """

    name: str
    type: str
    keyword_only: bool
    written: bool


@dataclass(frozen=True, slots=True)
class Schema:
    """An operator's schema.

    Attributes:
        name: ``namespace::operator``.
        overload: Name of the overload, often empty.
        parameters: Its arguments, in order.
    """

    name: str
    overload: str
    parameters: tuple[Parameter, ...]

    def place(self, name: str) -> int | None:
        """Return the place of a parameter; None if there is none of that name."""
        return next((place for place, one in enumerate(self.parameters) if one.name == name), None)


@lru_cache(maxsize=4096)
def parse_schema(text: str) -> Schema | None:
    """Parse a schema; None if it isn't one.

    Args:
        text: As in the column `op_schema`.

    Example:
        >>> schema = parse_schema("aten::add_.Tensor(Tensor(a!) self, Tensor other, *, Scalar alpha=1) -> Tensor(a!)")
        >>> schema.name, schema.overload, [one.name for one in schema.parameters if one.written]
        ('aten::add_', 'Tensor', ['self'])
    """
    head = _HEAD.match(text)
    if head is None:
        return None
    parts = _split(text[head.end() :])
    if parts is None:
        return None
    parameters = []
    keyword_only = False
    for part in parts:
        if part == "*":
            keyword_only = True
        elif part:
            parameters.append(_parameter(part, keyword_only))
    return Schema(head.group(1), head.group(2) or "", tuple(parameters))


def _split(text: str) -> list[str] | None:
    """Cut arguments apart at the commas outside of brackets and texts, up to the closing bracket."""
    parts, depth, begin = [], 0, 0
    bare = _TEXTS.sub(lambda found: "_" * len(found.group()), text)
    for at, char in enumerate(bare):
        if char in "([{":
            depth += 1
        elif char in ")]}" and depth:
            depth -= 1
        elif char == ")" or (char == "," and not depth):
            parts.append(text[begin:at].strip())
            begin = at + 1
            if char == ")":
                return parts
    return None


def _parameter(text: str, keyword_only: bool) -> Parameter:
    declared = text.partition("=")[0].strip() if "=" in text else text
    kind, _, name = declared.rpartition(" ")
    alias = re.search(r"\(([^()]*)\)", kind)
    plain = re.sub(r"\([^()]*\)", "", kind).strip()
    return Parameter(name, plain, keyword_only, alias is not None and "!" in alias.group(1))
