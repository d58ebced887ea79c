"""The cases: the files `*.cases` of this folder. `script` explains their lines."""

from __future__ import annotations

import re
from functools import partial
from pathlib import Path
from typing import Any

from icechunk_kit.case import CASES, Case, Step, substitute
from icechunk_kit.cases import hostile, scale, turns
from icechunk_kit.cases.repositories import Builder
from icechunk_kit.cases.script import parse, steps
from icechunk_kit.files import encode_id

__all__ = ["hostile", "scale", "turns"]  # they add lines that write files
REPETITION = re.compile(r"\{([^{}]*)\*(\d+)\}")


def build(lines: list[str], version: str, folder: Path) -> list[Step]:
    """Write the files of a case, and return its steps."""
    builder, result = Builder(folder, version), []
    texts = [line.replace("FOLDER", folder.as_uri()) for line in lines]
    texts = [REPETITION.sub(lambda match: match[1] * int(match[2]), line) for line in texts]
    for number, line in enumerate(texts):
        details = []
        for detail in texts[number + 1 :]:
            if not detail.startswith("    "):
                break
            details.append(detail)
        if line.startswith("  + "):
            result += builder.perform(line[4:], details)
        elif not line.startswith("    "):
            result += [builder.facts | step for step in steps(line)]
            for detail in details:
                result[-1]["faults"][-1]["steps"] += steps(detail)
    builder.finish()
    names = {f"${name}": encode_id(id) for name, id in builder.ids.items()}
    return [dict(substitute(step, names)) for step in result]


def fill(text: str, cells: list[str]) -> str:
    """Replace the places `{0}`, `{1}`... by the cells of a row. A row may have no cell for the last ones."""
    return re.sub(r"\{(\d+)\}", lambda match: "".join(cells[int(match[1]) :][:1]), text)


def register(path: Path) -> None:
    """Register the cases of a file."""
    default: dict[str, Any] = {"version": "2.0"}
    text = "\n".join(line for line in path.read_text().splitlines() if line.strip()[:1] not in ("", "#"))
    for number, block in enumerate(("\n" + text).split("\ncase ")):
        id, *lines = block.splitlines()
        heads = [line.partition(" ") for line in lines if line[0] not in " |"]
        facts = default | {key: True if key == "store" else rest for key, _, rest in heads}
        if number == 0:
            default = facts
            continue
        for row in [line for line in lines if line.startswith("|")] or ["|"]:
            cells = [cell.strip() for cell in row.strip("|").split("|")]
            script = [fill(line, cells) for line in lines if line.startswith("  ")]
            words: dict[str, Any] = {
                key: fill(fact, cells) if isinstance(fact, str) else fact for key, fact in facts.items()
            }
            words |= {key: parse(words[key]) for key in ("seconds", "mebibytes") if key in words}
            function = partial(build, [line for line in script if line.strip()], words["version"])
            name = fill(id, cells)
            assert name not in CASES, name
            CASES[name] = Case(name, build=function, **words)


for _path in sorted(Path(__file__).parent.glob("*.cases")):
    register(_path)
