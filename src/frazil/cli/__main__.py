"""The command as ``python -m frazil.cli``."""

from __future__ import annotations

import sys

from frazil.cli.main import main

sys.exit(main())
