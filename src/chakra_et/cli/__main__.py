"""``python -m chakra_et.cli`` is ``chakra``."""

from __future__ import annotations

import sys

from chakra_et.cli import main

sys.exit(main())
