"""Imports point down, and outside libraries stay where they belong (contracts in pyproject.toml)."""

from importlinter.cli import EXIT_STATUS_SUCCESS, lint_imports


def test_import_contracts(repository, monkeypatch, capsys):
    monkeypatch.chdir(repository)
    status = lint_imports(config_filename="pyproject.toml", no_cache=True)
    assert status == EXIT_STATUS_SUCCESS, capsys.readouterr().out
