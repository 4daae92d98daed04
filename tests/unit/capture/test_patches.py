"""Changes to what others own: there for a while, and gone as if they had never been."""

import sys

import pytest

from chakra_et.capture.patches import after_import, replaced


class Base:
    @staticmethod
    def inherited():
        return "base"


class Owner(Base):
    @classmethod
    def own(cls):
        return cls.__name__


def test_everything_is_as_before_afterwards():
    before = dict(vars(Owner))
    with replaced(Owner, {"own": lambda: 1, "inherited": lambda: 2, "absent": lambda: 3}):
        assert (Owner.own(), Owner.inherited(), hasattr(Owner, "absent")) == (1, 2, False)
        with replaced(Owner, {"own": lambda: 4}):
            assert Owner.own() == 4
        assert Owner.own() == 1
    assert dict(vars(Owner)) == before
    assert (Owner.own(), Owner.inherited()) == ("Owner", "base")


def test_an_error_inside_changes_nothing_about_that():
    with pytest.raises(ZeroDivisionError), replaced(Owner, {"own": None}):
        _ = 1 / 0
    assert Owner.own() == "Owner"


@pytest.fixture
def module(tmp_path, monkeypatch):
    (tmp_path / "chakra_late.py").write_text("number = 7\n")
    monkeypatch.syspath_prepend(tmp_path)
    yield "chakra_late"
    sys.modules.pop("chakra_late", None)


def test_now_or_as_soon_as_it_is_imported(module):
    found, finders = [], list(sys.meta_path)
    after_import(module, lambda loaded: found.append(loaded.number))
    assert not found
    __import__(module)
    after_import(module, lambda loaded: found.append(loaded.number + 1))
    assert (found, sys.meta_path) == ([7, 8], finders)


def test_taken_back(module):
    found, finders = [], list(sys.meta_path)
    undo = after_import(module, found.append)
    undo()
    undo()
    __import__(module)
    assert (found, sys.meta_path) == ([], finders)
