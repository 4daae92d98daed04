"""What all tests share: the bundled sample, and where the repository is."""

from __future__ import annotations

from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[1]
# What some modules are for, and isn't needed otherwise.
FRAMEWORKS = ("torch", "lightning", "pytorch_lightning", "accelerate", "deepspeed", "torchtitan")


@pytest.fixture(scope="session")
def repository() -> Path:
    """The root of the checkout."""
    return ROOT


@pytest.fixture(scope="session")
def sample() -> Path:
    """The bundled profiles: host.<rank>.json.gz and device.<rank>.json.gz of 2 ranks."""
    return ROOT / "examples" / "data"
