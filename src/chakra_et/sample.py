"""The bundled sample: profiles of two ranks that train a small transformer, captured by ``examples/capture_ddp.py``."""

from __future__ import annotations

from pathlib import Path

from chakra_et.errors import InputError

__all__ = ["sample_folder"]


def sample_folder() -> Path:
    """Return the folder of the bundled profiles: ``host.<rank>.json.gz`` and ``device.<rank>.json.gz`` of 2 ranks.

    Raises:
        InputError: The package was installed without its sample.

    Example:
        >>> sorted(path.name for path in sample_folder().glob("*.gz"))[0]
        'device.0.json.gz'
    """
    package = Path(__file__).resolve().parent
    # Inside the wheel; in a checkout (editable install) the data lies beside the script that captured it.
    for folder in (package / "_sample", package.parents[1] / "examples" / "data"):
        if (folder / "host.0.json.gz").is_file():
            return folder
    raise InputError(f"{package}: expected the bundled sample in _sample/, found none; reinstall chakra-et")
