"""`KernelClasses`: what kernels do, and in which element type, told by their names; rules are data that users extend.

Shape letters: N names, U distinct names.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from functools import lru_cache
from importlib import resources
from itertools import chain
from pathlib import Path

import numpy as np
import numpy.typing as npt
import polars as pl

from chakra_et.errors import InputError
from chakra_et.specs._fields import Fields
from chakra_et.specs._files import first_line, parse_toml, read_text
from chakra_et.specs.system import DTYPES

__all__ = ["OTHER", "KernelClasses", "KernelRule", "load_kernel_classes"]

OTHER = "other"
_BUILT_IN = resources.files("chakra_et.specs") / "presets" / "kernel_classes.toml"
_NAME = re.compile(r"[a-z][a-z0-9_]{0,40}")


@dataclass(frozen=True, slots=True)
class KernelRule:
    """Patterns, one of which makes a name mean something.

    Attributes:
        value: A class or an element type.
        patterns: Regular expressions, to be found anywhere in a name; upper and lower case are the same.
    """

    value: str
    patterns: tuple[str, ...]

    @property
    def pattern(self) -> str:
        """All patterns as one, for names in lower case."""
        # Case folding costs time, so that only patterns with capitals get it.
        folded = (pattern if pattern == pattern.lower() else f"(?i:{pattern})" for pattern in self.patterns)
        return "|".join(f"(?:{pattern})" for pattern in folded)


@dataclass(frozen=True, slots=True)
class KernelClasses:
    """Rules that tell the class and the element type of a kernel or an operator by its name.

    Attributes:
        rules: Rules of classes, in order: the first that fits a name counts.
        dtypes: Rules of element types (of `chakra_et.specs.system.DTYPES`), in order.
        meanings: Pairs of a class and a sentence that says what is in it.

    Example:
        >>> classes = load_kernel_classes()
        >>> classes.classify("ampere_bf16_s16816gemm_bf16_128x128_tn"), classes.classify("aten::layer_norm")
        ('gemm', 'normalization')
        >>> classes.dtype("ampere_bf16_s16816gemm_bf16_128x128_tn"), classes.dtype("aten::layer_norm")
        ('bf16', None)
    """

    rules: tuple[KernelRule, ...]
    dtypes: tuple[KernelRule, ...]
    meanings: tuple[tuple[str, str], ...]

    @property
    def kinds(self) -> tuple[str, ...]:
        """All classes, `OTHER` last."""
        return (*(name for name, _ in self.meanings), OTHER)

    @property
    def types(self) -> tuple[str, ...]:
        """All element types that a rule tells, in the rules' order."""
        return tuple(dict.fromkeys(rule.value for rule in self.dtypes))

    def classify(self, name: str) -> str:
        """Return the class of a name, `OTHER` if no rule fits."""
        return self.kinds[int(_first_fit(pl.Series([name]), self.rules, self.kinds)[0])]

    def dtype(self, name: str) -> str | None:
        """Return the element type that a name tells, None if it tells none."""
        found = int(_first_fit(pl.Series([name]), self.dtypes, self.types)[0])
        return None if found < 0 else self.types[found]

    def classify_names(self, names: pl.Series) -> pl.Series:
        """Return the class of each name; each distinct name is looked at once.

        Args:
            names: [N], String, Enum or Categorical.

        Returns:
            Enum [N] with the categories `kinds`: `to_physical()` gives indices into them. Null is `OTHER`.

        Example:
            >>> load_kernel_classes().classify_names(pl.Series(["gemm", "x", "gemm", None])).to_list()
            ['gemm', 'other', 'gemm', 'other']
        """
        return _look_up(names, self.rules, self.kinds).fill_null(OTHER)

    def dtype_names(self, names: pl.Series) -> pl.Series:
        """Return the element type that each name tells.

        Args:
            names: [N], String, Enum or Categorical.

        Returns:
            Enum [N] with the categories `types`; null where a name tells none.

        Example:
            >>> load_kernel_classes().dtype_names(pl.Series(["hgemm", "x"])).to_list()
            ['fp16', None]
        """
        return _look_up(names, self.dtypes, self.types)


def _look_up(names: pl.Series, rules: tuple[KernelRule, ...], values: tuple[str, ...]) -> pl.Series:
    table = pl.DataFrame({"name": names})
    distinct = table.unique().drop_nulls()["name"].cast(pl.String)
    # Ranks of a job have the same kernels: what was looked at once is remembered.
    seen = _seen(rules)
    fresh = [name for name in distinct if name not in seen]
    if fresh:
        seen.update(zip(fresh, _first_fit(pl.Series(fresh), rules, values).tolist(), strict=True))
    told = [None if seen[name] < 0 else values[seen[name]] for name in distinct]
    known = pl.DataFrame([distinct.cast(names.dtype).alias("name"), pl.Series("value", told, pl.Enum(values))])
    return table.join(known, on="name", how="left", maintain_order="left")["value"].alias(names.name)


@lru_cache(maxsize=8)
def _seen(rules: tuple[KernelRule, ...]) -> dict[str, int]:
    """Return what is known of names by these rules: the place of the value, -1 for none."""
    return {}


def _first_fit(names: pl.Series, rules: tuple[KernelRule, ...], values: tuple[str, ...]) -> npt.NDArray[np.int64]:
    """Return the index into `values` of the first rule that fits each name, int64 [U]; -1: none."""
    found = np.full(len(names), -1, np.int64)
    rows = np.arange(len(names))
    rest = names.str.replace_all("(anonymous namespace)::", "", literal=True).str.to_lowercase()
    for rule in rules:
        if not len(rest):
            break
        fits = rest.str.contains(rule.pattern)
        found[rows[fits.to_numpy()]] = values.index(rule.value)
        rows, rest = rows[~fits.to_numpy()], rest.filter(~fits)
    return found


def load_kernel_classes(*paths: str | Path) -> KernelClasses:
    r"""Return the rules of the files, in their order, before the built-in ones.

    Args:
        paths: TOML files of the form of the built-in one (``presets/kernel_classes.toml`` in this package), with
            more patterns for classes and classes of their own.

    Raises:
        InputError: A file isn't there, or a key or value isn't what it should be.
        FormatError: A file isn't TOML.

    Example:
        >>> import pathlib, tempfile
        >>> path = pathlib.Path(tempfile.mkdtemp()) / "mine.toml"
        >>> _ = path.write_text('[[classes]]\nname = "solver"\nmeaning = "Solves."\npatterns = ["^lbm_"]')
        >>> load_kernel_classes(path).classify("lbm_step"), load_kernel_classes().classify("lbm_step")
        ('solver', 'other')
    """
    return _load(tuple(paths)) if paths else _built_in()


@lru_cache(maxsize=1)
def _built_in() -> KernelClasses:
    return _load(())


def _load(paths: tuple[str | Path, ...]) -> KernelClasses:
    files = [_read(str(path), read_text(path), check=True) for path in paths]
    # The patterns of the built-in file are known to be good (tests); compiling them twice would cost time.
    files.append(_read(_BUILT_IN.name, _BUILT_IN.read_text(encoding="utf-8"), check=False))
    meanings = dict(chain.from_iterable(file.meanings for file in reversed(files)))
    for place, file in zip(paths, files, strict=False):
        for rule in file.rules:
            if rule.value not in meanings:
                raise InputError(
                    f"{place}: classes: expected one of {', '.join(meanings)}, or a meaning for a new class, "
                    f"got '{rule.value}' without one; rename it, or say what is in it"
                )
    return KernelClasses(
        tuple(chain.from_iterable(file.rules for file in files)),
        tuple(chain.from_iterable(file.dtypes for file in files)),
        tuple(meanings.items()),
    )


def _read(place: str, text: str, *, check: bool) -> KernelClasses:
    """Return what one file says."""
    fields = Fields(place, parse_toml(text, place))
    classes = _entries(fields, "classes", ("name", "meaning", "patterns"))
    dtypes = _entries(fields, "dtypes", ("name", "patterns"))
    _refuse_rest(fields, ("classes", "dtypes"))
    return KernelClasses(
        tuple(KernelRule(_class_name(entry), _patterns(entry, check=check)) for entry in classes),
        tuple(KernelRule(entry.text("name", choices=DTYPES), _patterns(entry, check=check)) for entry in dtypes),
        tuple((entry.text("name"), entry.text("meaning")) for entry in classes if "meaning" in entry),
    )


def _entries(fields: Fields, key: str, keys: tuple[str, ...]) -> list[Fields]:
    tables = fields.value(key) if key in fields else []
    if not isinstance(tables, list):
        raise fields.error(key, "a list of tables", f"write [[{key}]] before each")
    entries = [Fields(f"{fields.place}: {key}[{index}]", table) for index, table in enumerate(tables)]
    for entry in entries:
        entry.skip(*keys)
        _refuse_rest(entry, keys)
    return entries


def _refuse_rest(fields: Fields, keys: tuple[str, ...]) -> None:
    for key in fields.rest():
        raise InputError(f"{fields.place}: expected only the keys {', '.join(keys)}, got '{key}'; remove it")


def _class_name(entry: Fields) -> str:
    name = entry.text("name")
    if not _NAME.fullmatch(name) or name == OTHER:
        advice = f"rename it ('{OTHER}' is what no rule fits)" if name == OTHER else "rename it"
        raise entry.error("name", "a name of lower-case letters, digits and _", advice)
    return name


def _patterns(entry: Fields, *, check: bool) -> tuple[str, ...]:
    patterns = entry.texts("patterns")
    if not patterns or not all(patterns):
        raise entry.error("patterns", "a list of regular expressions, none of them empty", "write at least one")
    for pattern in patterns if check else ():
        try:
            pl.Series([""]).str.contains(KernelRule("", (pattern,)).pattern)
        except pl.exceptions.ComputeError as err:
            raise InputError(
                f"{entry.place}: patterns: expected a regular expression, got '{pattern}': {first_line(err)}; "
                "correct it (look-around and back references aren't known)"
            ) from err
    return patterns
