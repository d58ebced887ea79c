"""The graph of a pipeline in a browser, next to what Frazil says about the same repository."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest
import zarr
from tests.pipeline.definition.feed import DEFINITION, damaged, day, feed, opened
from tests.ui.serving import hosted

from frazil.cli.main import main
from frazil.errors import ValidationFailedError
from frazil.pipeline import derived

pytestmark = pytest.mark.browser

RAIN = """
[[ingest]]
files = "rain_*.nc"
group = "/rain"
concat_dim = "time"

[[derived]]
operation = "coarsen"
sources = ["/rain/rain"]
factors = {time = 2}
to = "/half"

[publish]
tag = "feed"
"""


@dataclass(frozen=True)
class Feed:
    url: str
    published: str
    states: dict[str, str]


@pytest.fixture(scope="module")
def site(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Feed]:
    """A version that a run published, a run whose rule failed, and two changes of other writers."""
    folder = tmp_path_factory.mktemp("pipeline")
    for number in range(2):
        day(folder, number)
        day(folder, number, "rain")
    damaged(folder, 2)
    pipeline = feed(folder, DEFINITION + RAIN)
    published = pipeline.run().snapshot_id
    day(folder, 3, offset=200)
    with pytest.raises(ValidationFailedError):
        pipeline.run()
    repo = opened(folder)
    for path in ("daily/weather/t2m", "rain/rain"):
        with repo.transaction("main", message=f"change {path}") as store:
            zarr.open_array(store, path=path)[0] = 281
    states = {each.path: str(each.state) for each in derived(repo).arrays}
    assert main(["ui", str(folder / "ice"), "--static", str(folder / "page")]) == 0
    with hosted(Path(folder)) as url:
        yield Feed(f"{url}page/index.html", published, states)


def opened_at(page: Any, site: Feed, version: str, **sizes: int) -> Any:
    page.set_viewport_size({"width": 1280, "height": 720, **sizes})
    page.goto(f"{site.url}#/v/{version}/?view=pipeline")
    boxes = page.get_by_role("group", name="Pipeline feed").get_by_role("listitem").filter(has_text="branch")
    boxes.filter(has_text="publication").wait_for()
    return page.get_by_role("group", name="Pipeline feed").locator("li.box")


def test_states_are_those_of_frazil(page: Any, site: Feed) -> None:
    boxes = opened_at(page, site, "main")
    for path, state in site.states.items():
        boxes.get_by_text(f"{path}: {state}", exact=True).wait_for()
    assert set(site.states.values()) == {"edited", "behind"}
    boxes.filter(has_text="t2m_*.nc").get_by_text("1 quarantined", exact=True).wait_for()
    boxes.filter(has_text="t2m_*.nc").get_by_text("last t2m_1.nc", exact=True).first.wait_for()
    boxes.filter(has_text="publication").get_by_text("tag feed", exact=True).wait_for()
    boxes.get_by_role("link", name="1 of 1 rule failed").click()
    boxes.filter(has_text="publication").get_by_text("not published").wait_for()
    assert "branch.audit" in page.url
    page.get_by_role("link", name="In the history").click()
    page.get_by_text("✗ failed: ").wait_for()


def test_an_older_version_has_its_own_state(page: Any, site: Feed) -> None:
    boxes = opened_at(page, site, site.published)
    for path in site.states:
        boxes.get_by_text(f"{path}: current", exact=True).wait_for()


def test_the_drawing_is_a_list(page: Any, site: Feed) -> None:
    """Boxes lie apart, no line passes one, and a narrow page has the same items as a list."""
    boxes = opened_at(page, site, "main")
    boxes.get_by_text("/daily/weather/t2m: edited", exact=True).wait_for()
    texts = boxes.all_text_contents()
    assert page.evaluate(CROSSED) == []
    assert "/daily/weather/t2m: edited" in page.locator(".box[title*=edited]").first.get_attribute("title")
    page.set_viewport_size({"width": 360, "height": 700})
    page.locator(".drawn svg").wait_for(state="hidden")
    assert boxes.all_text_contents() == texts
    assert page.evaluate("document.documentElement.scrollWidth") <= 360
    boxes.get_by_role("link", name="/weather", exact=True).focus()
    page.keyboard.press("Enter")
    page.wait_for_url("**#/v/main/weather")


#: The titles of boxes that another box or a line lies on, or whose text is higher than the box.
CROSSED = """() => {
  const boxes = [...document.querySelectorAll("li.box")].map(each => [each, each.getBoundingClientRect()]);
  const inside = (box, x, y) => x > box.left + 1 && x < box.right - 1 && y > box.top && y < box.bottom;
  const origin = document.querySelector(".drawn svg").getBoundingClientRect();
  const points = [...document.querySelectorAll(".drawn path")].flatMap(path =>
    Array.from({ length: 400 }, (_, at) => path.getPointAtLength((at / 399) * path.getTotalLength())));
  return boxes.filter(([each, box]) =>
    each.scrollHeight > each.clientHeight + 1
    || points.some(({ x, y }) => inside(box, origin.left + x, origin.top + y))
    || boxes.some(([other, { left, top }]) => other !== each && inside(box, left + 2, top + 2))
  ).map(([each]) => each.textContent);
}"""
