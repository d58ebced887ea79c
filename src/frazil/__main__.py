"""The command ``frazil``, as ``python -m frazil``."""

from __future__ import annotations

import sys

from frazil.cli.main import main

sys.exit(main())
