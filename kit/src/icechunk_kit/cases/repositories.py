"""The lines `+ ...` of a case, which write files before the requests, with the writer of the kit.

- `+ snapshot ID NAME=VALUE...: NODE; NODE` is a commit, with the arguments of `files.Repository.commit`. Its
  message is its id. A node is `PATH [SHAPE/CHUNKS] [COORDINATES=REFERENCE]... [NAME=VALUE]...`: the names
  are the fields of `files.Node`. Groups above a node are added.
- A reference is hexadecimal text (inline), or `native:HEX`, `virtual:URL`, or a form of `COMPRESSIONS` and a
  URL, and `[START:STOP]` behind it if the chunk is a part of the file. `none` has no field.
- `+ branch ID NAME...`, `+ tag ID NAME...`, `+ update KIND NAME=VALUE...`: names, and the log of updates
  (`times=9`: so many).
  `+ forget ID...` takes snapshots out of the list, and `updates` the log. `+ version NUMBER`: from here on.
- `+ put KEY TEXT`, `+ remove PATTERN`, `+ copy KEY KEY`: any file. `+ write` writes the repo file, which a
  case without this line gets at its end.
- `+ allow FOLDER [NAME]`: a container of virtual chunks or of a prefix of URLs, for the steps that follow.
  `+ at FOLDER`: they are about another repository.
- Other modules add lines with the decorator `line`.

Lines with more indentation change the files of the line before them: `edit KIND PATH NAME=VALUE... -NAME...`
(see `files.edit`), `header KIND NAME=VALUE...` (see `files.envelope`), and in the body of a file `replace
KIND HEX HEX` and `patch KIND PLACE HEX`. Several kinds have commas between them. A value is JSON, a literal
of Python, or a name of `NAMED`. FOLDER is the URL of the folder of the case, `$ID` an id.
"""

from __future__ import annotations

import os
import re
import shlex
from collections import defaultdict
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import zstandard

from icechunk_kit.case import Step
from icechunk_kit.cases.script import coordinates, parse, split, value
from icechunk_kit.files import (
    ROOT_ID,
    Change,
    Document,
    Edit,
    Node,
    Repository,
    edit,
    edits,
    encode_id,
    identifier,
    inline,
    native,
)

type Line = Callable[..., list[Step] | None]
LINES: dict[str, Line] = {}
#: Values with a name.
NAMED: dict[str, Any] = {}
#: The time of each file that a line puts.
SECONDS = 1_700_000_000
DICTIONARY = b"".join(f"file:///data/{n:03}/chunk-{n}.bin ".encode() for n in range(90))
#: The forms of a compressed location.
COMPRESSIONS: dict[str, Change] = {
    "raw": bytes,
    "compressed": zstandard.ZstdCompressor(dict_data=zstandard.ZstdCompressionDict(DICTIONARY)).compress,
    "bomb": lambda url: zstandard.compress(url + b"/" * 10_000_000),
}
REFERENCE = re.compile(r"(?:([a-z]+):)?(.*?)(?:\[(\d+):(\d+)\])?")


def line(function: Line) -> Line:
    """Register a function as a line: its words follow the builder. It may return steps."""
    LINES[function.__name__.strip("_").replace("_", "-")] = function
    return function


def pairs(words: Sequence[str]) -> Document:
    cells = (word.partition("=") for word in words)
    return {key: NAMED[text] if text in NAMED else parse(text) for key, _, text in cells}


def reference(text: str) -> Document:
    match = REFERENCE.fullmatch(text)
    assert match is not None
    kind, content, start, stop = match[1], match[2], int(match[3] or 0), int(match[4] or 0)
    if kind == "native":
        return native(bytes.fromhex(content), start, stop or None)
    place = {"offset": start, "length": stop - start}
    if kind == "virtual":
        return {"location": content, **place}
    if kind in COMPRESSIONS:
        return {"compressed_location": COMPRESSIONS[kind](content.encode()), **place}
    return {} if content == "none" else inline(bytes.fromhex(value(content)))


def node(text: str) -> Node:
    path, *words = shlex.split(text)
    result = Node(path)
    for word in words:
        key, mark, content = word.partition("=")
        if not mark:
            result.shape, result.chunks = (coordinates(part) for part in word.split("/"))
        elif key[:1].isalpha():
            setattr(result, key, parse(content))
        else:
            result.refs = {**result.refs, tuple(coordinates(key)): reference(content)}
    return result


def replacement(old: str, new: str) -> Change:
    def change(body: bytes) -> bytes:
        assert bytes.fromhex(old) in body, old
        return body.replace(bytes.fromhex(old), bytes.fromhex(new))

    return change


def patch(place: int, data: bytes) -> Change:
    return lambda body: body[:place] + data + body[place + len(data) :]


class Builder:
    """Writes the files of a case.

    Attributes:
        folder: The folder of the repository.
        created: The repository, after the first line that needs it.
        ids: The ids of the snapshots by their names.
        facts: The members that the next steps get.
        edits, headers: The changes of the next files, by their kind.
    """

    def __init__(self, root: Path, version: str) -> None:
        self.root, self.version = root, 1 if version == "1" else 2
        self.ids: dict[str, bytes] = {"root": ROOT_ID}
        self.at("")

    def at(self, name: str) -> None:
        self.folder = self.root / name
        self.facts: Step = {"at": name} if name else {}
        self.created: Repository | None = None
        self.edits: dict[str, Edit] = {}
        self.headers: dict[str, Document] = {}

    @property
    def repository(self) -> Repository:
        self.created = self.created or Repository(self.folder, self.version)
        return self.created

    def perform(self, text: str, details: Sequence[str] = ()) -> list[Step]:
        """Perform a line, with the lines of more indentation."""
        ids = {f"${name}": encode_id(id) for name, id in self.ids.items()}
        text = re.sub(r"\$\w+", lambda match: ids.get(match[0], match[0]), text)
        self.change(details)
        op, words, content = split(text)
        count = len(self.created.snapshots) if self.created else 1
        steps = LINES[op](self, *words, **({} if content is None else {"content": content}))
        if {*self.edits, *self.headers} - {"Repo"} and details and len(self.repository.snapshots) == count:
            raise ValueError(f"the line {op!r} writes no file that the lines below it could change")
        return [self.facts | step for step in steps or []]

    def change(self, details: Sequence[str]) -> None:
        """Change the next files. Changes of the repo file wait until it is written."""
        changes: dict[str, list[Edit]] = defaultdict(list)
        self.headers = defaultdict(dict, {"Repo": self.headers.get("Repo", {})})
        for op, kinds, *words in map(shlex.split, details):
            for kind in kinds.split(","):
                if op == "edit":
                    absent = [word[1:] for word in words[1:] if word[0] == "-"]
                    fields = pairs([word for word in words[1:] if word[0] != "-"])
                    changes[kind].append(edit(words[0].strip("."), *absent, **fields))
                elif op == "header":
                    self.headers[kind] |= pairs(words)
                elif op == "replace":
                    self.headers[kind]["body"] = replacement(*words)
                else:
                    self.headers[kind]["body"] = patch(int(words[0]), bytes.fromhex(words[1]))
        repo = {"Repo": self.edits["Repo"]} if "Repo" in self.edits else {}
        self.edits = repo | {kind: edits(*parts) for kind, parts in changes.items()}

    def commit(self, nodes: Sequence[Node], id: str = "one", **options: Any) -> bytes:
        self.ids[id] = identifier(f"snapshot {len(self.repository.snapshots)}")
        if "parent" in options:
            options["parent"] = self.ids.get(options["parent"], identifier(options["parent"]))
        options = {"message": id, "id": self.ids[id], **options}
        return self.repository.commit(nodes, edit=self.edits, header=self.headers, **options)

    def finish(self) -> None:
        """Write the repo file, if there is a repository without one."""
        names = (self.folder / name for name in ("repo", "refs/branch.main/ref.json"))
        if self.created and not any(path.exists() for path in names):
            self.created.write(self.edits.get("Repo"), **self.headers.get("Repo", {}))


@line
def snapshot(builder: Builder, id: str, *options: str, content: str = "") -> None:
    nodes = {each.path: each for each in map(node, filter(None, content.split("; ")))}
    for path in list(nodes):
        while path := path.rpartition("/")[0]:
            nodes.setdefault(path, Node(path))
    builder.commit(list(nodes.values()), id, **pairs(options))


@line
def branch(builder: Builder, id: str, *names: str) -> None:
    builder.repository.branches |= dict.fromkeys(names, builder.ids[id])


@line
def tag(builder: Builder, id: str, *names: str) -> None:
    builder.repository.tags |= dict.fromkeys(names, builder.ids[id])


@line
def update(builder: Builder, kind: str, *fields: str) -> None:
    values = pairs(fields)
    for _ in range(values.pop("times", 1)):
        content = {key: builder.ids.get(str(value), value) for key, value in values.items()}
        builder.repository.log(kind, **content)


@line
def put(builder: Builder, key: str, text: str = "") -> None:
    path = builder.folder / key
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_bytes(text.encode().decode("unicode_escape").encode("latin-1"))
    os.utime(path, (SECONDS, SECONDS))


@line
def remove(builder: Builder, pattern: str) -> None:
    for path in builder.folder.glob(pattern):
        path.unlink()


@line
def copy(builder: Builder, key: str, target: str) -> None:
    path = builder.folder / target
    path.parent.mkdir(exist_ok=True)
    path.write_bytes((builder.folder / key).read_bytes())


@line
def forget(builder: Builder, *names: str) -> None:
    repository, ids = builder.repository, {builder.ids.get(name) for name in names}
    repository.snapshots = [each for each in repository.snapshots if each["id"] not in ids]
    repository.updates = [] if "updates" in names else repository.updates


@line
def version(builder: Builder, number: str) -> None:
    builder.version = int(number)
    builder.repository.version = builder.version


@line
def write(builder: Builder) -> None:
    builder.repository.write(builder.edits.get("Repo"), **builder.headers.get("Repo", {}))


@line
def at(builder: Builder, name: str) -> None:
    builder.finish()
    builder.at(name)


@line
def allow(builder: Builder, folder: str, name: str | None = None) -> None:
    if "://" in folder:
        builder.facts["containers"] = [folder]
        return
    path = builder.root / folder
    prefix, store = f"{path.as_uri()}/", {"local_file_system": str(path)}
    container = {"name": name, "url_prefix": prefix, "store": store}
    builder.facts["containers"] = [prefix]
    if builder.created:
        builder.created.config = {"virtual_chunk_containers": {prefix: container}}
