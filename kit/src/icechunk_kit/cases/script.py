"""Cases as text: the files `*.cases` of this folder.

A line `case ID` begins a case. The lines `level`, `version`, `rule`, `why`, `seconds`, `mebibytes` and
`store` follow. Before the first case they are the default of the file. Each line that begins with `|` makes a
case of its own: its cells take the places `{0}`, `{1}`... of the other lines. `{TEXT*COUNT}` repeats a text,
and `#` in it is the number of the repetition, in 8 digits.
Indented lines are steps. With more indentation they belong to the line before them: to a fault, or to a line
that writes files (`+ ...`, see `repositories`). `1: STEP` is a step of the second implementation. `STEP ->
ANSWER` has an expectation: JSON, `error KIND...`, `value or error`, or `any: [...]` with several answers,
of which `"error"` may be one.

- `create VERSION`, `base`: make a repository, empty or with the first nodes, `$base`.
- `begin S [BRANCH]`, `rearrange S`, `reader S REF`: open a session. `edit S: CHANGE; CHANGE`, `commit S ID`
  and `amend S ID` use it.
- `change ID [BRANCH]: CHANGE; CHANGE`: a session of its own, and a commit.
- `read REF PATH CHUNK...` (`-` is no chunk; `1,2=CHUNK` has coordinates), `nodes REF PATH...` (`*` marks an
  array), `log REF ID...` (without the root), `refs main=ID tag:v=ID`, `updates KIND...`, `diff FROM TO
  LIST=JSON...` (other lists are empty): what must be there. A `REF` is a branch, `tag:NAME` or `@ID`.
- `files COUNT PATTERN`, `check`, `fault EFFECT METHOD PATTERN`, and each other step as `OP NAME=VALUE...`,
  with a `!` before the name of an operation in this list. `ref` is the branch `main`.
- `fields KIND PATH [ID]`: the values of a field in the files of a kind, or in one (see `checks.fields`).

A change is `KEY = VALUE`, `- KEY` (deletes a chunk, or a node with all below it) or `FROM > TO`. A value is
hexadecimal text, `600*ab`, `group WORD...` or `array SIZE... WORD...`: uint8, chunks of 2, and the words
are attributes.
"""

from __future__ import annotations

import json
import re
import shlex
from ast import literal_eval
from collections.abc import Callable, Iterator, Sequence
from functools import partial
from itertools import count
from typing import Any

from icechunk_kit.case import ERROR, Step
from icechunk_kit.files import ROOT_ID, encode_id

#: The nodes and chunks that most cases start with.
BASE = (
    "zarr.json = group; g/zarr.json = group; g/a/zarr.json = array 8; g/sub/zarr.json = group;"
    " h/zarr.json = group; g/a/c/0 = 0000; g/a/c/1 = 0101; g/a/c/2 = 0202; g/a/c/3 = 0303"
)
NAMES = {"root": encode_id(ROOT_ID), "*": "*"}
_numbers = count()


def value(text: str) -> str:
    """Return the hexadecimal text of a value."""
    kind, *words = text.split()
    if kind not in ("group", "array"):
        times, star, byte = text.partition("*")
        return byte * int(times) if star else text
    shape = [int(word) for word in words if word.isdigit()]
    attributes = {word: True for word in words if not word.isdigit()}
    document: dict[str, Any] = {"zarr_format": 3, "node_type": kind, "attributes": attributes}
    if kind == "array":
        grid = {"name": "regular", "configuration": {"chunk_shape": [2 for _ in shape]}}
        document |= {"shape": shape, "data_type": "uint8", "chunk_grid": grid, "fill_value": 0}
        document["chunk_key_encoding"] = {"name": "default", "configuration": {"separator": "/"}}
        document["codecs"] = [{"name": "bytes"}]
    return json.dumps(document).encode().hex()


def parse(text: str) -> Any:
    """Return a value of JSON, a literal of Python that ends with a bracket or a quote, or the text itself."""
    is_literal = text.endswith((")", "]", "}", "'", '"'))
    for read_text in (json.loads, literal_eval) if is_literal else (json.loads,):
        try:
            return read_text(text)
        except (ValueError, SyntaxError):
            pass
    return text


def split(line: str) -> tuple[str, list[str], str | None]:
    """Return the operation of a line, its words, and what stands behind a colon in some lines."""
    edited = EDIT.fullmatch(line)
    op, *words = shlex.split(edited[1] if edited else line)
    return op, words, edited[2] if edited else None


def coordinates(text: str) -> list[int]:
    return [int(number) for number in text.split(",") if number]


def name(text: str) -> str:
    return NAMES.get(text, f"${text}")


def reference(text: str) -> Step:
    kind, mark, rest = text.partition(":")
    if text.startswith("@"):
        return {"snapshot_id": name(text[1:])}
    return {kind: rest} if mark else {"branch": text}


def edits(session: str, lines: str) -> Iterator[Step]:
    for line in filter(None, (line.strip() for line in lines.split(";"))):
        if line.startswith("- "):
            yield {"op": "delete", "session": session, "key": line[2:]}
        elif " > " in line:
            source, _, target = line.partition(" > ")
            yield {"op": "move", "session": session, "from": source, "to": target}
        else:
            key, _, content = line.partition(" = ")
            yield {"op": "set", "session": session, "key": key, "data": value(content)}


def change(id: str, branch: str = "main", *options: str, content: str = "") -> list[Step]:
    session = f"$session {next(_numbers)}"
    opening = {"op": "session", "branch": branch, "rearrange": " > " in content, "expect": session}
    return [opening, *edits(session, content), *end("commit", session[1:], id, *options)]


def end(op: str, session: str, id: str = "*", *options: str) -> list[Step]:
    step = {"op": op, "session": f"${session}", "message": f"message {id}", "expect": name(id)}
    return [step | pairs(options)]


def pairs(words: Sequence[str]) -> Step:
    return {key: parse(text) for key, _, text in (word.partition("=") for word in words)}


def read(ref: str, path: str, *chunks: str) -> list[Step]:
    cells = [word.rpartition("=") for word in chunks]
    places = [coordinates(at) if mark else [number] for number, (at, mark, _) in enumerate(cells)]
    values = [None if chunk == "-" else value(chunk) for _, _, chunk in cells]
    return [{"op": "read", "ref": reference(ref), "path": path, "chunks": places, "expect": values}]


def nodes(ref: str, *paths: str) -> list[Step]:
    rows = [{"path": path.rstrip("*"), "type": "array" if path.endswith("*") else "group"} for path in paths]
    return [{"op": "list", "ref": reference(ref), "expect": rows}]


def log(ref: str, *ids: str) -> list[Step]:
    rows = [{"id": name(id), "message": "*", "time": "*"} for id in (*ids, "root")]
    return [{"op": "log", "ref": reference(ref), "expect": rows}]


def updates(*kinds: str) -> list[Step]:
    return [{"op": "updates", "expect": [{"kind": f"{kind}Update", "time": "*"} for kind in kinds]}]


def diff(start: str, end: str, *lists: str) -> list[Step]:
    empty: Step = {"new": [], "deleted": [], "updated": [], "chunks": {}, "moved": []}
    return [{"op": "diff", "from": name(start), "to": name(end), "expect": empty | pairs(lists)}]


def refs(*words: str) -> list[Step]:
    ids = {key: name(id) for key, _, id in (word.rpartition("=") for word in words)}
    tags = {key.removeprefix("tag:"): id for key, id in ids.items() if key.startswith("tag:")}
    branches = {key: id for key, id in ids.items() if not key.startswith("tag:")}
    return [{"op": "refs", "expect": {"branches": branches, "tags": tags}}]


def fault(effect: str, method: str = "PUT", key: str = "", *options: str) -> list[Step]:
    rule = {"effect": effect, "method": method, "key": key, "steps": []}
    return [{"op": "kit.fault", "faults": [rule | pairs(options)]}]


def session(op: str, session: str, ref: str = "main") -> list[Step]:
    where: Step = (
        {"ref": reference(ref)} if op == "reader" else {"branch": ref, "rearrange": op == "rearrange"}
    )
    return [{"op": "session", **where, "expect": f"${session}"}]


SHORT: dict[str, Callable[..., list[Step]]] = {
    "base": lambda: [{"op": "create", "version": "2"}, *change("base", content=BASE)],
    "create": lambda version: [{"op": "create", "version": version}],
    "change": change,
    "edit": lambda session, content: list(edits(f"${session}", content)),
    "read": read,
    "nodes": nodes,
    "log": log,
    "refs": refs,
    "updates": updates,
    "diff": diff,
    "fault": fault,
    "files": lambda number, key="": [{"op": "kit.files", "key": key, "expect": ["*"] * int(number)}],
    "check": lambda *rules: [{"op": "kit.check", "expect": []} | ({"rules": rules} if rules else {})],
    "fields": lambda kind, path, id="": [
        {"op": "kit.fields", "kind": kind, "path": path, "id": id and name(id)}
    ],
    **{op: partial(session, op) for op in ("begin", "rearrange", "reader")},
    **{op: partial(end, op) for op in ("commit", "amend")},
}


#: Operations of readers that need a reference.
AT_REFERENCE = ("log", "properties", "list", "metadata", "read", "count")
EDIT = re.compile(r"""((?:change|edit|snapshot)(?:\s+(?:'[^']*'|"[^"]*"|[^\s:"']+))+):\s*(.*)""")


def steps(line: str) -> list[Step]:
    """Return the steps of a line."""
    line, arrow, expected = line.strip().partition(" -> ")
    who, colon, rest = line.partition(": ")
    who, line = (who, rest) if colon and who.isdigit() else ("0", line)
    op, words, content = split(line)
    if op in SHORT:
        result = SHORT[op](*words, **({} if content is None else {"content": content}))
    else:
        op = op.removeprefix("!")
        main = {"ref": {"branch": "main"}} if op in AT_REFERENCE else {}
        result = [{"op": op, **main, **pairs(words)}]
    if expected == "value or error":
        result[-1]["expect"] = {"any": [result[-1].get("expect", "*"), ERROR]}
    elif expected.startswith("any: "):
        result[-1]["expect"] = {"any": [ERROR if each == "error" else each for each in parse(expected[5:])]}
    elif arrow:
        kinds = expected.split()
        result[-1]["expect"] = {"error": kinds[1:] or "*"} if kinds[0] == "error" else parse(expected)
    return [{**step, "who": int(who)} for step in result]
