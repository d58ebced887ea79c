"""The command line: runs a command, and turns its errors into an exit status.

==  ===================================================================================================
0   done
1   an error of Frazil; or `verify`, `repair`, `doctor`, `diff --exit-code` have something to report
2   wrong arguments
3   the question before a change was not answered with yes: nothing was changed
4   `ingest` or `pipeline run` has left files out because of problems
5   `pipeline`: there was nothing to do; 6: a rule failed; 7: the files were refused
130 Ctrl-C; 141: the reader of a pipe has ended
==  ===================================================================================================

An error is one line on standard error, and a line for each file with a problem. With ``--json`` it is a JSON
object, with ``--debug`` also the trace.
"""

from __future__ import annotations

import io
import json
import logging
import os
import sys
import traceback
import warnings
from collections.abc import Sequence
from typing import Any, Final

import click

from frazil.about import __version__
from frazil.cli.command import DEBUG, SETTINGS, Frazil, Output, visible
from frazil.errors import IcechunkError, UnreadableArrayWarning

_ERROR: Final = 1
_USAGE: Final = 2
_INTERRUPTED: Final = 130
_NO_READER: Final = 141

_HELP: Final = """\
Transactional, versioned storage for Zarr arrays in the Icechunk format.

Most commands take LOCATION[@VERSION][:PATH]. LOCATION is a folder, a URL such as s3://bucket/prefix, or the
name of a profile; default: this folder. VERSION is a branch, a tag, the first characters of a snapshot id, a
time such as 2026-11-01, or an ancestor such as main~3. PATH is a group or an array.

\b
First steps:
  frazil ingest data.nc ice             write a file (NetCDF, GRIB, ...) into a new repository
  frazil tree ice                       look at it
  frazil cat ice:t2m 0                  print values, with labels and units
  frazil branch ice fix                 make a branch
  frazil set ice@fix:t2m 0,1,2 281.5    correct a value on the branch
  frazil diff ice fix --values          compare it with `main`
  frazil merge ice fix                  bring it into `main`
  frazil log ice                        see the versions; `frazil undo ice` goes back

`ingest`, `copy`, `clone`, `export`, `rechunk` and `recompress` need the extra `pipeline`. GRIB and GeoTIFF
files need `ingest`. `frazil ingest --help` shows the command that installs it.
"""


frazil: Final = Frazil(
    "frazil",
    help=_HELP,
    epilog="`frazil COMMAND --help` shows the options and examples of a command.",
    context_settings=SETTINGS,
    params=[DEBUG],
    no_args_is_help=True,
)
click.version_option(__version__, prog_name="frazil", message="%(prog)s %(version)s")(frazil)


def main(arguments: Sequence[str] | None = None) -> int:
    """Run a command and return its exit status. ``arguments`` are by default those of the process."""
    output = Output()
    if arguments is None:  # the first error ends the command, and asyncio would print those of other chunks
        logging.getLogger("asyncio").setLevel(logging.CRITICAL)
    for name in ("stdout", "stderr"):
        stream = getattr(sys, name)
        if stream is None:  # the caller has closed it
            setattr(sys, name, io.StringIO())
        elif isinstance(stream, io.TextIOWrapper):  # other encodings have no characters for trees and names
            stream.reconfigure(encoding="utf-8")
    with warnings.catch_warnings():
        warnings.simplefilter("always", UnreadableArrayWarning)
        show, shown = warnings.showwarning, set[str]()

        def note(message: Warning | str, category: type[Warning], *place: Any, **more: Any) -> None:
            if category is not UnreadableArrayWarning:
                show(message, category, *place, **more)
            elif str(message) not in shown:
                print(f"frazil: {visible(str(message))}", file=sys.stderr)
            shown.add(str(message))

        warnings.showwarning = note
        return _run(output, arguments)


def _run(output: Output, arguments: Sequence[str] | None) -> int:
    """Run a command, and report its error."""
    try:
        status = frazil.main(
            None if arguments is None else list(arguments), "frazil", standalone_mode=False, obj=output
        )
        sys.stdout.flush()
        return status if isinstance(status, int) else 0
    except click.exceptions.NoArgsIsHelpError as error:
        error.show()
        return _USAGE
    except click.ClickException as error:
        output.as_json |= "--json" in (sys.argv[1:] if arguments is None else arguments)  # not parsed yet
        context = error.ctx if isinstance(error, click.UsageError) else None
        usage = "" if context is None or context.command is frazil or output.as_json else context.get_usage()
        return _report(
            output, f"{error.format_message()}\n{' '.join(usage.split())}".strip(), "usage", _USAGE
        )
    except IcechunkError as error:
        status = output.statuses.get(error.kind, _ERROR)
        message = str(error) if output.statuses else error.for_shell(output.location)
        return _report(output, message, str(error.kind), status)
    except (KeyboardInterrupt, click.Abort):
        print("frazil: interrupted. The repository is valid: a change is whole or absent", file=sys.stderr)
        return _INTERRUPTED
    except BrokenPipeError:
        # The interpreter flushes standard output at its end, and would print an error.
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        return _NO_READER
    except (OSError, ValueError, TypeError, ArithmeticError, LookupError, RuntimeError) as error:
        return _report(output, f"{type(error).__name__}: {error}. --debug shows the trace", "other", _ERROR)


def _report(output: Output, message: str, kind: str, status: int) -> int:
    """Print the error that is handled, and return the exit status."""
    if output.debug:
        traceback.print_exc()
    if output.as_json:
        document = json.dumps({"error": {"kind": kind, "message": message}}, ensure_ascii=False)
        print(visible(document), file=sys.stderr)
    else:
        lines = [visible(" ".join(line.split())) for line in message.split("\n") if line.strip()]
        first, *others = lines or [""]
        print(f"frazil: {first} [{kind}]", *(f"  {line}" for line in others), sep="\n", file=sys.stderr)
    return status
