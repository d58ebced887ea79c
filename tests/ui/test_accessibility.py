"""The rules of axe for each view of the page, in light and dark, and newer views by the keyboard."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import pytest
from tests.ui.test_views import address as address

pytestmark = pytest.mark.browser

#: The address of each view, and the roles and names that it has once it is complete.
VIEWS = {
    "overview": ("", [("application", "Map of t"), ("link", "correct one day")]),
    "commit": ("#/history", [("columnheader", "before"), ("heading", "Values before and after")]),
    "tree": ("#/v/main/", [("treeitem", "scene"), ("heading", "Attributes")]),
    "about": ("#/v/main/t?view=about", [("heading", "Attributes")]),
    "map": ("#/v/main/t?view=data", [("application", "Map of t")]),
    "image": ("#/v/main/t?view=data&proj=grid&p=1.1.1", [("img", "Line of t along time")]),
    "line": ("#/v/main/t?view=data&x=0&y=none", [("img", "Line of t along time")]),
    "table": ("#/v/main/t?view=data&show=table", [("rowheader", "60")]),
    "divider on a map": ("#/v/main/t?view=data&i=2,0,0&with=main~1", [("slider", "Divider")]),
    "divider on a grid": (
        "#/v/main/t?view=data&i=2,0,0&proj=grid&with=main~1&cut=30",
        [("slider", "Divider")],
    ),
    "mean of a part": (
        "#/v/main/t?view=data&proj=grid&mean=1&p=1.1.1&r1=1-4",
        [("img", "Line of t along time"), ("button", "Remove point 1")],
    ),
    "versions": ("#/v/main/t?view=data&ver=x", [("slider", "version of the array")]),
    "past": ("#/v/main/t?view=data&i=2,0,0&past=2.1.3", [("columnheader", "Author")]),
    "chunks": ("#/v/main/t?view=chunks&colour=commit&cell=2,0,0", [("heading", "Chunk 2, 0, 0")]),
    "lines that differ": ("#/diff/main~1/main/t?view=text", [("group", "Lines that differ")]),
    "values that differ": ("#/diff/main~1/main/t?view=data", [("application", "difference of t")]),
    "repository": ("#/repository", [("heading", "Branches")]),
    "failure": ("#/v/nothing/", [("alert", "")]),
}


def problems_of(page: Any, address: str, views: Mapping[str, tuple[str, list[tuple[str, str]]]]) -> list[str]:
    """What breaks the rules of axe on some views."""
    problems: list[str] = []
    for turn, (view, (place, marks)) in enumerate(views.items()):
        page.goto(f"{address}?{turn}{place}")
        for role, name in marks:
            page.get_by_role(role, name=name or None).first.wait_for()
        problems += [f"{view}, {each}" for each in problems_now(page)]
    return problems


def problems_now(page: Any) -> list[str]:
    """What breaks the rules of axe on a page as it is: all rules in light, and those of colours in dark."""
    package = pytest.importorskip("axe_playwright_python.sync_playwright", reason="needs the group `browser`")
    axe, problems = package.Axe(), list[str]()
    for scheme, options in {
        "light": {},
        "dark": {"runOnly": ["color-contrast", "link-in-text-block"]},
    }.items():
        page.emulate_media(color_scheme=scheme)
        results = axe.run(page, options={"resultTypes": ["violations"], **options})
        problems += [
            f"{scheme}: {violation['id']}: {node['html'][:160]}"
            for violation in results.response["violations"]
            for node in violation["nodes"]
        ]
    return problems


def test_rules_of_axe(page: Any, address: str) -> None:
    assert problems_of(page, address, VIEWS) == []


def test_mean_of_a_part_by_keyboard(page: Any, address: str) -> None:
    page.goto(f"{address}#/v/main/t?view=data&proj=grid")
    button = page.get_by_role("button", name="Mean of this part")
    button.focus()
    assert button.get_attribute("aria-pressed") == "false"
    page.keyboard.press("Enter")
    page.get_by_text("Values of 1 line").wait_for()
    assert button.get_attribute("aria-pressed") == "true"
    page.keyboard.press("Tab")
    along = page.get_by_role("combobox", name="Lines along")
    assert along.evaluate("select => select === document.activeElement")
    page.keyboard.press("l")  # the first dimension with this letter
    page.wait_for_url("**along=1*")
    page.get_by_role("img", name="Line of t along lat").wait_for()


def test_divider_by_keyboard(page: Any, address: str) -> None:
    """Tab leads from the picture to the divider, whose keys do not move the map below it."""
    page.goto(f"{address}#/v/main/t?view=data&i=2,0,0&with=main~1")
    divider = page.get_by_role("slider", name="Divider")
    divider.wait_for()
    page.get_by_role("application", name="Map of t").focus()
    page.keyboard.press("Tab")
    assert divider.evaluate("element => element === document.activeElement")
    page.keyboard.press("ArrowLeft")
    page.wait_for_url("**cut=48*")
    assert divider.get_attribute("aria-valuetext") == "48 percent of the width for this version"
    page.keyboard.press("End")
    page.wait_for_url("**cut=100*")
    assert "m=" not in page.url
