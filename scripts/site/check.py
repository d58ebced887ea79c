"""Check built sites: links inside of a site lead somewhere, and no page loads anything from another host.

scripts/site/check.py site
"""

from __future__ import annotations

import sys
from html.parser import HTMLParser
from pathlib import Path
from urllib.parse import unquote, urlsplit

#: The attributes whose address a browser loads by itself, and the values of `rel` for which it does not.
LOADED = {("script", "src"), ("img", "src"), ("iframe", "src"), ("link", "href")}
NOT_LOADED = {"canonical", "next", "prev", "alternate"}


class Page(HTMLParser):
    """The ids of a page, the addresses that it links to, and those that it loads."""

    def __init__(self, text: str) -> None:
        super().__init__()
        self.ids: set[str] = set()
        self.links: list[str] = []
        self.loads: list[str] = []
        self.feed(text)

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        values = {name: value or "" for name, value in attrs}
        self.ids.update(values[name] for name in ("id", "name") if name in values)
        for name in ("href", "src"):
            if name not in values:
                continue
            self.links.append(values[name])
            if (tag, name) in LOADED and values.get("rel") not in NOT_LOADED:
                self.loads.append(values[name])


def problems(site: Path) -> list[str]:
    """Return what is wrong with a site, as a line for each problem."""
    site = site.resolve()
    pages = {path: Page(path.read_text()) for path in sorted(site.rglob("*.html"))}
    lines = [] if pages else [f"{site}: no pages"]
    for path, page in pages.items():
        name = path.relative_to(site)
        lines += [f"{name} loads {address}" for address in page.loads if urlsplit(address).netloc]
        for link in page.links:
            address = urlsplit(link)
            if address.scheme or address.netloc or path.name == "404.html":
                continue  # the links of 404.html depend on the address of the site
            target = (path.parent / unquote(address.path)).resolve() if address.path else path
            if target.is_dir():
                target /= "index.html"
            if not target.exists() or not target.is_relative_to(site):
                lines.append(f"{name} links to {link}, which does not exist")
            elif target in pages and address.fragment and unquote(address.fragment) not in pages[target].ids:
                lines.append(f"{name} links to {link}, which has no such section")
    return lines


if __name__ == "__main__":
    sys.exit("\n".join(line for site in sys.argv[1:] for line in problems(Path(site))) or None)
