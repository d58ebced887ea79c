"""``frazil upgrade``: from spec version 1 to 2."""

from __future__ import annotations

from typing import Final

import frazil
from frazil.cli.changes import confirm, dry_run_option, yes_option
from frazil.cli.command import LOCATION, target_argument, verb
from frazil.cli.opening import repository_of
from frazil.cli.output import Output
from frazil.cli.target import Target

_DESCRIPTION: Final = """\
Upgrade a repository from spec version 1 to 2. No other process should write to it at the same time. If
the upgrade was interrupted, run the same command again. `frazil import` reads formats before version 1."""

_EXAMPLES: Final = """\
frazil upgrade ice --dry-run   do everything except writing
frazil upgrade ice --yes       upgrade, without a question"""


@verb("upgrade", description=_DESCRIPTION, examples=_EXAMPLES)
@target_argument(type=LOCATION, metavar="[LOCATION]")
@dry_run_option
@yes_option
def command(output: Output, target: Target, dry_run: bool, yes: bool) -> None:
    """Upgrade the repository."""
    repo = repository_of(target)
    before = int(repo.spec_version)
    if before > 1:
        line = f"nothing to do: spec version {before}"
    elif dry_run:
        frazil.upgrade_icechunk_repository(repo, dry_run=True)
        line = "would upgrade from spec version 1 to 2"
    else:
        confirm(
            output, "Upgrade to spec version 2? Libraries that only know version 1 cannot read it.", yes=yes
        )
        repo = frazil.upgrade_icechunk_repository(repo, dry_run=False)
        line = f"upgraded from spec version 1 to {int(repo.spec_version)}"
    output.emit({"before": before, "spec_version": int(repo.spec_version), "dry_run": dry_run}, [line])
