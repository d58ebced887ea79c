"""The loop of an adapter in Python. An adapter in another language does the same in a few lines.

The runner writes one request to the standard input of the adapter: a line of JSON with `op`, `location` and
the arguments of the operation. The adapter answers with one line: `{"value": ...}`,
`{"error": {"kind": ..., "message": ...}}` or `{"unsupported": true}`.
"""

from __future__ import annotations

import json
import os
import sys
from collections.abc import Callable, Mapping
from typing import Any


def serve(operations: Mapping[str, Callable[..., Any]], kind: Callable[[Exception], str]) -> None:
    """Answer requests until the input ends.

    Args:
        operations: A function for each operation. It gets the members of the request as keywords.
        kind: Returns the kind of an error, a word of the table of kinds in `README.md`.
    """
    answers = os.fdopen(os.dup(1), "w")
    os.dup2(2, 1)  # what a library prints does not mix with the answers
    for line in sys.stdin:
        request = json.loads(line)
        operation = operations.get(request.pop("op"))
        answer: dict[str, Any]
        if operation is None:
            answer = {"unsupported": True}
        else:
            try:
                answer = {"value": operation(**request)}
            except NotImplementedError:
                answer = {"unsupported": True}
            except Exception as error:
                answer = _error(kind(error), error)
            except BaseException as error:  # a panic of a library in Rust
                if isinstance(error, (KeyboardInterrupt, SystemExit)):
                    raise
                answer = _error("panic", error)
        print(json.dumps(answer), file=answers, flush=True)


def _error(kind: str, error: BaseException) -> dict[str, Any]:
    return {"error": {"kind": kind, "message": f"{type(error).__name__}: {error}"[:1000]}}
