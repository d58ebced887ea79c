"""Write the pages of the documentation site: those of docs/, the reference, and llms.txt.

scripts/site/pages.py build/docs

`mkdocs.yml` lists all pages. `reference/MODULE.md` shows the docstrings of the public names of a module.
"""

from __future__ import annotations

import re
import shutil
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import click
import griffe
import yaml  # type: ignore[import-untyped]
from error_pages import error_pages

import frazil
from frazil.cli.command import SECTIONS, Frazil

ROOT = Path(__file__).resolve().parents[2]
LINK = re.compile(r"\]\(([^)\s]+)\)")
#: Files that pages of docs/ link to -> the page of the site that shows their content.
SHOWN = {
    "src/frazil/error_kinds.py": "reference/error-kinds.md",
    "src/frazil/cli/command.py": "reference/commands.md",
    "src/frazil/maintenance/verification/findings.py": "reference/checks.md",
}
#: The page that lists the pages of the reference.
INDEX = "reference/index.md"
#: The number of examples of a command.
EXAMPLES = 3
STUB = re.compile(r"from ([\w.]+) import \(?\s*(\w+) as \2\b")


def write_site(target: Path) -> None:
    """Write all pages into a new directory."""
    config = yaml.safe_load((ROOT / "mkdocs.yml").read_text())
    shutil.rmtree(target, ignore_errors=True)
    shutil.copytree(ROOT / "docs", target)
    for page in target.glob("*.md"):
        page.write_text(with_links_to_the_repository(page.read_text(), config["repo_url"]))
    overview = target / "api.md"
    overview.write_text(
        re.sub(
            r"^\| `(frazil[\w.]*)` \|",
            r"| [`\1`](reference/\1.md) |",
            overview.read_text(),
            flags=re.MULTILINE,
        )
    )
    (target / "assets").mkdir()
    for name in ("search.js", "extra.css", "extra.js"):
        shutil.copy(Path(__file__).with_name(name), target / "assets")
    partials = target.with_name("theme") / "partials"
    partials.mkdir(parents=True, exist_ok=True)
    shutil.copy(Path(__file__).with_name("source.html"), partials)
    with (target / "assets" / "extra.css").open("a") as css:
        css.write(f':root {{ --version: "{frazil.__version__}"; }}\n')
    (target / "reference").mkdir()
    pages = [page for _, page in pages_of(config["nav"])]
    modules = [page[len("reference/") : -len(".md")] for page in pages if page.startswith("reference/frazil")]
    texts = reference_pages(modules)
    texts.update(error_pages(config["repo_url"]))
    texts["commands"] = commands()
    texts["checks"] = checks()
    (target / "reference" / "errors").mkdir()
    for name, text in texts.items():
        (target / "reference" / f"{name}.md").write_text(text)
    [reference] = [entry["Reference"] for entry in config["nav"] if "Reference" in entry]
    (target / INDEX).write_text(reference_index(reference, target))
    (target / "llms.txt").write_text(llms(config, target))


def pages_of(nav: list[Any], section: str = "") -> Iterator[tuple[str, str]]:
    """Yield the top section and the file of each page, in the order of the navigation."""
    for entry in nav:
        for title, value in entry.items() if isinstance(entry, dict) else [("", entry)]:
            if isinstance(value, str):
                yield section, value
            else:
                yield from pages_of(value, section or title)


def with_links_to_the_repository(text: str, repo_url: str) -> str:
    """Return a page of docs/ whose links to files outside of docs/ lead to the site or the repository."""

    def address(match: re.Match[str]) -> str:
        if not match[1].startswith("../"):
            return match[0]
        path, hash_, section = match[1].removeprefix("../").partition("#")
        if path in SHOWN:
            return f"]({SHOWN[path]}{hash_}{section})"
        kind = "tree" if (ROOT / path).is_dir() else "blob"
        return f"]({repo_url}/{kind}/main/{path}{hash_}{section})"

    return LINK.sub(address, text)


def reference_pages(modules: list[str]) -> dict[str, str]:
    """Return a page for each module. The first module that has a name documents it, and `frazil` the rest."""
    loader = griffe.GriffeLoader(search_paths=[ROOT / "src", ROOT / "importer" / "src"])
    loader.load("frazil_import")
    package = loader.load("frazil")
    loader.resolve_aliases()
    nodes = {name: package[name.removeprefix("frazil.")] for name in modules if name != "frazil"}
    nodes["frazil"] = package
    exports = {module: public_names(node) for module, node in nodes.items()}
    documented: dict[str, str] = {}  # where a name is defined -> the address of its documentation
    for names in exports.values():
        for address in names.values():
            documented.setdefault(package[address.removeprefix("frazil.")].canonical_path, address)
    pages = {}
    for module, names in exports.items():
        docstring = nodes[module].docstring
        own, links = [], []
        for name, address in sorted(names.items()):
            place = documented[package[address.removeprefix("frazil.")].canonical_path]
            if place == address:
                own.append(f"::: {address}")
            else:
                links.append(f"[`{name}`][{place}]")
        parts = [f"# {module}", docstring.value.split("\n\n")[0] if docstring else ""]
        if links:
            parts.append("Other pages describe: " + ", ".join(links) + ".")
        pages[module] = "\n\n".join([*parts, *own]) + "\n"
    return pages


def public_names(module: griffe.Module) -> dict[str, str]:
    """Return the names of Frazil that a module exports, with the addresses of their documentation."""
    stub = module.filepath.with_suffix(".pyi")  # type: ignore[union-attr]  # one file
    if stub.exists():
        origins = STUB.findall(stub.read_text())
    else:
        origins = [("", name) for name, member in module.members.items() if member.is_public]
    # A name of the stub may also be the name of a submodule, which hides it.
    return {
        name: f"{origin}.{name}" if module[name].is_module else f"{module.path}.{name}"
        for origin, name in origins
        if name in module.members
        and module[name].canonical_path.startswith(("frazil.", "frazil_import."))
        and (origin or not module[name].is_module)
    }


def checks() -> str:
    """Return a page with the checks of a verification."""
    rows = [
        f"| `{check.name}` | {check.section} | `{check.level}` | {check.severity} | {check.rule} |"
        for check in frazil.Repository.upkeep.checks()
    ]
    return "\n".join(
        (
            "# Checks of a verification",
            "",
            "[Verify](../verify.md) shows how to run them. The names are stable.",
            "",
            "| check | section | level | severity | rule |",
            "|---|---|---|---|---|",
            *rows,
            "",
        )
    )


def commands() -> str:
    """Return a page with the help of each command, and what it prints in the transcripts."""
    parts = [
        "# Commands",
        "This page has the help of each command. [Another page](../command-line.md) shows ten at work.",
    ]
    examples = transcripts([verb.name for verbs in SECTIONS.values() for verb in verbs])
    with click.Context(Frazil("frazil"), info_name="frazil", max_content_width=100) as group:
        for title, verbs in SECTIONS.items():
            parts.append(f"## {title.capitalize()}")
            for verb in verbs:
                with click.Context(verb.command(), group, verb.name, terminal_width=100) as context:
                    text = verb.command().get_help(context)
                parts.append(f"### frazil {verb.name}\n\n```text\n{text}\n```")
                if verb.name in examples:
                    parts.append("```console\n" + "\n".join(examples[verb.name][:EXAMPLES]) + "\n```")
    return "\n\n".join(parts) + "\n"


def transcripts(names: list[str]) -> dict[str, list[str]]:
    """Return the calls of each command in the transcripts, with their output."""
    pages = [Path(__file__).with_name("commands.md"), *(ROOT / "docs").glob("command-*.md")]
    examples: dict[str, list[str]] = {}
    for block in re.findall(
        r"```console\n(.*?)\n```", "\n".join(page.read_text() for page in pages), re.DOTALL
    ):
        for call in re.split(r"\n(?=\$ )", block):
            for name in names:
                if f"{call.split(chr(10))[0]} ".startswith(f"$ frazil {name} "):
                    examples.setdefault(name, []).append(call)
    return examples


def reference_index(nav: list[Any], target: Path) -> str:
    """Return a page that lists the other pages of the reference, in the sections of the navigation."""
    lines = ["# Reference", "", "The pages of the reference have facts: names, options, formats, limits.", ""]
    for entry in sorted(nav, key=lambda entry: not isinstance(entry, str)):  # pages before sections
        title, pages = ("", [entry]) if isinstance(entry, str) else next(iter(entry.items()))
        lines += ["", f"## {title}", ""] if title else []
        for page in pages:
            if page != INDEX:
                name, sentence = title_and_sentence((target / page).read_text())
                lines.append(f"- [{name}](../{page}): {sentence}" if sentence else f"- [{name}](../{page})")
    return "\n".join(lines) + "\n"


def llms(config: dict[str, Any], target: Path) -> str:
    """Return the pages as a list for language models: title, address, first sentence."""
    lines = [f"# {config['site_name']}", "", f"> {config['site_description']}"]
    previous = None
    for section, page in pages_of(config["nav"]):
        if section != previous:
            lines += ["", f"## {section}", ""] if section else [""]
            previous = section
        title, sentence = title_and_sentence((target / page).read_text())
        end = f": {sentence}" if sentence else ""
        lines.append(f"- [{title}]({page.removesuffix('.md')}.html){end}")
    return "\n".join(lines) + "\n"


def title_and_sentence(page: str) -> tuple[str, str]:
    """Return the title of a page and the first sentence below it, without links."""
    title, _, rest = page.removeprefix("# ").partition("\n")
    paragraph = " ".join(rest.strip().split("\n\n")[0].split())
    paragraph = re.sub(r"\[([^\]]*)\][(\[][^)\]]*[)\]]", r"\1", paragraph)
    sentence = re.match(r"(.*?[.:])(?= [A-Z`*]|$)", paragraph)
    return title.replace("`", ""), "" if sentence is None else sentence[1].removesuffix(":")


if __name__ == "__main__":
    write_site(Path(sys.argv[1]))
