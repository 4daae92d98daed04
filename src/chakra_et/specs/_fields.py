"""`Fields`: a table of a description file, its keys taken one by one; what is wrong is said with file and key."""

from __future__ import annotations

import math
import reprlib
from collections.abc import Iterable

from chakra_et.errors import FormatError, InputError

__all__ = ["MOST_INTEGER", "Fields", "shown"]

MOST_INTEGER = 2**31 - 1
_MOST_SHOWN = 60
_SHORT = reprlib.Repr()  # a few lines of YAML with references can stand for a value too large to print
_SHORT.maxlevel = 3
_SHORT.maxlist = _SHORT.maxdict = 8
_SHORT.maxstring = _SHORT.maxother = _MOST_SHOWN


def shown(value: object) -> str:
    """Return a value for a message, cut off where it is long.

    Example:
        >>> shown("x"), shown(None), shown([1.5])
        ("'x'", 'null', '[1.5]')
    """
    text = "null" if value is None else str(value).lower() if isinstance(value, bool) else _SHORT.repr(value)
    return text if len(text) <= _MOST_SHOWN else text[: _MOST_SHOWN - 3] + "..."


class Fields:
    """A table of a file.

    Args:
        place: File, and table in it, for messages.
        values: What the file holds there.

    Raises:
        FormatError: It is no table with text as keys.

    Example:
        >>> fields = Fields("network.yml", {"latency": [500, 1.5], "x": 1})
        >>> fields.numbers("latency"), fields.rest()
        ((500, 1.5), ('x',))
    """

    def __init__(self, place: str, values: object) -> None:
        if not isinstance(values, dict):
            raise FormatError(f"{place}: expected keys with values, got {shown(values)}; check the file")
        strange = [key for key in values if not isinstance(key, str)]
        if strange:
            raise FormatError(f"{place}: expected text as keys, got {shown(strange[0])}; check the file")
        self.place = place
        self._values: dict[str, object] = values
        self._taken: set[str] = set()

    def __contains__(self, key: str) -> bool:
        return key in self._values

    def error(self, key: str, expected: str, advice: str) -> InputError:
        """Return the error that a key's value is another than expected."""
        got = shown(self._values[key]) if key in self._values else "nothing"
        return InputError(f"{self.place}: {key}: expected {expected}, got {got}; {advice}")

    def rest(self) -> tuple[str, ...]:
        """Return the keys that nobody took, in order."""
        return tuple(key for key in self._values if key not in self._taken)

    def skip(self, *keys: str) -> None:
        """Take keys whose values don't matter."""
        self._taken.update(keys)

    def value(self, key: str) -> object:
        """Take a value of any type; None if it isn't there."""
        self._taken.add(key)
        return self._values.get(key)

    def text(self, key: str, default: str | None = None, *, choices: Iterable[str] = ()) -> str:
        """Take a text, one of `choices` if there are any; required where `default` is None."""
        value = self.value(key)
        if key not in self and default is not None:
            return default
        names = tuple(choices)
        if not isinstance(value, str) or (names and value not in names):
            raise self.error(key, f"one of {', '.join(names)}" if names else "a text", "check the value")
        return value

    def number(self, key: str, default: float | None = None) -> float:
        """Take a number of 0 or more; required where `default` is None."""
        value = self.value(key)
        if key not in self and default is not None:
            return default
        number = _number(value)
        if number is None or number < 0:
            raise self.error(key, "a number of 0 or more", "check the value")
        return number

    def integer(self, key: str, default: int | None = None, *, least: int = 0) -> int:
        """Take an integer, a fraction cut off; required where `default` is None."""
        value = self.value(key)
        if key not in self and default is not None:
            return default
        number = _number(value)
        if number is None or not least <= int(number) <= MOST_INTEGER:
            raise self.error(key, f"an integer from {least} to {MOST_INTEGER}", "check the value")
        return int(number)

    def flag(self, key: str) -> bool:
        """Take 0, 1, false or true; absent is false."""
        value = self.value(key)
        if key in self and not isinstance(value, int):
            raise self.error(key, "0 or 1", "check the value")
        return bool(value)

    def texts(self, key: str) -> tuple[str, ...]:
        """Take a list of texts; absent is empty."""
        value = self.value(key)
        if key not in self:
            return ()
        if not isinstance(value, list) or not all(isinstance(entry, str) for entry in value):
            raise self.error(key, "a list of texts", f"write {_listed(value, 'ring')}")
        return tuple(value)

    def numbers(self, key: str) -> tuple[float, ...]:
        """Take a list of numbers, also of such that are written as text (YAML reads 1e3 as one)."""
        value = self.value(key)
        numbers = [_number(_from_text(entry)) for entry in value] if isinstance(value, list) else [None]
        if any(number is None for number in numbers):
            raise self.error(key, "a list of numbers", f"write {_listed(value, '50.0')}")
        return tuple(number for number in numbers if number is not None)


def _number(value: object) -> float | int | None:
    """Return a finite number, None for anything else."""
    if isinstance(value, bool) or not isinstance(value, int | float) or abs(value) > 1e300 or math.isnan(value):
        return None
    return value


def _from_text(value: object) -> object:
    try:
        return float(value) if isinstance(value, str) else value
    except ValueError:
        return value


def _listed(value: object, sample: str) -> str:
    one = value if isinstance(value, str | int | float) and not isinstance(value, bool) else sample
    return f"a list with one entry a dimension, such as [ {one} ]"
