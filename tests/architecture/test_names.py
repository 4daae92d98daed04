"""Public names are listed, exist, and are documented; messages never come from an assert."""

import ast
import dataclasses
import importlib
import inspect
import pkgutil
import re
from pathlib import Path

import pytest

import chakra_et
from tests.conftest import FRAMEWORKS

MODULES = sorted(
    module.name
    for module in pkgutil.walk_packages(chakra_et.__path__, "chakra_et.")
    if "_proto" not in module.name and not module.name.endswith("__main__")
)
LIBRARY = [name for name in MODULES if ".cli." not in name]


def load(name):
    """Import a module; skip the test where it is for a framework that isn't here."""
    try:
        return importlib.import_module(name)
    except ImportError as err:
        if err.name in FRAMEWORKS:
            pytest.skip(f"{name} needs {err.name}, which is not installed")
        raise


@pytest.mark.parametrize("name", LIBRARY)
def test_all_lists_what_exists(name):
    module = load(name)
    public = getattr(module, "__all__", None)
    if public is None:
        assert not defines_names(module), f"{name} has no __all__"
        return
    assert len(set(public)) == len(public)
    assert [entry for entry in public if not hasattr(module, entry)] == []


def defines_names(module):
    """Tell whether a module has more than a docstring and future imports."""
    body = ast.parse(Path(module.__file__).read_text(encoding="utf-8")).body
    return any(not isinstance(node, ast.Expr | ast.ImportFrom) for node in body)


@pytest.mark.parametrize("name", LIBRARY)
def test_public_names_are_documented(name):
    module = load(name)
    assert module.__doc__
    assert "TODO" not in module.__doc__
    for entry in getattr(module, "__all__", ()):
        value = getattr(module, entry)
        if getattr(value, "__module__", "") == name and callable(value):
            assert inspect.getdoc(value), f"{name}.{entry} has no docstring"
            assert undescribed_fields(value) == [], f"{name}.{entry} has fields that its docstring doesn't describe"


def undescribed_fields(value):
    """Return the public fields of a dataclass, but those it inherits, that aren't under "Attributes:"."""
    if not (inspect.isclass(value) and dataclasses.is_dataclass(value)):
        return []
    _, _, section = inspect.getdoc(value).partition("\nAttributes:\n")
    names = re.findall(r"^    (\w+(?:, \w+)*): \S", section.partition("\n\n")[0], re.MULTILINE)
    described = {name for line in names for name in line.split(", ")}
    inherited = {name for base in value.__mro__[1:] for name in getattr(base, "__dataclass_fields__", ())}
    return [
        field.name
        for field in dataclasses.fields(value)
        if not field.name.startswith("_") and field.name not in described | inherited
    ]


def test_undescribed_fields_are_found():
    @dataclasses.dataclass
    class Point:
        """A point.

        Attributes:
            x, y: Place.
        """

        x: int
        y: int
        z: int
        _cache: int = 0

    @dataclasses.dataclass
    class Place(Point):
        """A place."""

        name: str = ""

    assert undescribed_fields(Point) == ["z"]
    assert undescribed_fields(Place) == ["name"]


def test_top_level_exports_match_the_type_checkers_view():
    tree = ast.parse(inspect.getsource(chakra_et))
    checked = next(node for node in tree.body if isinstance(node, ast.If))
    seen = {(alias.asname or alias.name) for node in checked.body for alias in node.names}
    assert seen == set(chakra_et._EXPORTS)
    assert set(chakra_et.__all__) == seen | {"__version__"}


@pytest.mark.parametrize("name", sorted(chakra_et._EXPORTS))
def test_top_level_export_loads(name):
    assert getattr(chakra_et, name) is not None
    assert name in dir(chakra_et)


def test_unknown_export_is_an_attribute_error():
    with pytest.raises(AttributeError, match="no attribute 'nothing'"):
        _ = chakra_et.nothing


@pytest.mark.parametrize("name", MODULES)
def test_no_assert_statements(name):
    spec = importlib.util.find_spec(name)
    tree = ast.parse(Path(spec.origin).read_text(encoding="utf-8"))
    assert [node.lineno for node in ast.walk(tree) if isinstance(node, ast.Assert)] == []
