"""``python -m frazil``, the command ``frazil``."""

from __future__ import annotations

import sys

from frazil.cli.main import main

sys.exit(main())
