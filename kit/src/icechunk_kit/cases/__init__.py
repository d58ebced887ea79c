"""The cases: the files `*.cases` of this folder. `script` explains their lines."""

from __future__ import annotations

import re
from functools import partial
from pathlib import Path
from typing import Any

from icechunk_kit.case import CASES, Case, KitError, Step, substitute
from icechunk_kit.cases import hostile, scale, turns
from icechunk_kit.cases.repositories import Builder
from icechunk_kit.cases.script import parse, steps
from icechunk_kit.files import encode_id

__all__ = ["hostile", "scale", "turns"]  # they add lines that write files
REPETITION = re.compile(r"\{([^{}]*)\*(\d+)\}")


def repeat(match: re.Match[str]) -> str:
    return "".join(match[1].replace("#", f"{number:08}") for number in range(int(match[2])))


def build(place: str, lines: list[str], version: str, folder: Path) -> list[Step]:
    """Write the files of a case, and return its steps. An error names the place of the case."""
    try:
        return perform(lines, version, folder)
    except Exception as error:
        raise KitError(f"{place}: {type(error).__name__}: {error}") from error


def perform(lines: list[str], version: str, folder: Path) -> list[Step]:
    builder, result = Builder(folder, version), []
    texts = [line.replace("FOLDER", folder.as_uri()) for line in lines]
    texts = [REPETITION.sub(repeat, line) for line in texts]
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
    blocks: list[tuple[int, list[str]]] = [(0, ["case "])]
    for number, line in enumerate(path.read_text().splitlines(), 1):
        if line.startswith("case "):
            blocks.append((number, []))
        if line.strip()[:1] not in ("", "#"):
            blocks[-1][1].append(line)
    for number, (head, *lines) in blocks:
        id, place = (
            head.removeprefix("case "),
            f"{path.name}, line {number}, case {head.removeprefix('case ')}",
        )
        heads = [line.partition(" ") for line in lines if line[0] not in " |"]
        facts = default | {key: True if key == "store" else rest for key, _, rest in heads}
        if number == 0:
            default = facts
            continue
        if lacks := {"level", "rule", "why"} - facts.keys() or facts.keys() - Case.__slots__:
            raise KitError(f"{place}: these heads are missing or unknown: {', '.join(sorted(lacks))}")
        for row in [line for line in lines if line.startswith("|")] or ["|"]:
            cells = [cell.strip() for cell in row.strip("|").split("|")]
            script = [fill(line, cells) for line in lines if line.startswith("  ")]
            words: dict[str, Any] = {
                key: fill(fact, cells) if isinstance(fact, str) else fact for key, fact in facts.items()
            }
            words |= {key: parse(words[key]) for key in ("seconds", "mebibytes") if key in words}
            function = partial(build, place, [line for line in script if line.strip()], words["version"])
            name = fill(id, cells)
            if name in CASES:
                raise KitError(f"{place}: there is another case {name}")
            CASES[name] = Case(name, build=function, **words)


for _path in sorted(Path(__file__).parent.glob("*.cases")):
    register(_path)
