"""The picture of a history is that of the published icechunk, letter by letter."""

from __future__ import annotations

import shutil
import tempfile
from pathlib import Path
from typing import Any

import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st
from tests.interop.both import sides
from tests.support.examples import examples

import frazil

pytestmark = [pytest.mark.deep, pytest.mark.interop]

BRANCHES = ("main", "alpha", "Zeta", "é")
messages = st.text(
    st.characters(codec="utf-8", exclude_categories=["C", "Z"], exclude_characters="(") | st.just(" "),
    max_size=70,
)
steps = st.lists(
    st.tuples(
        st.sampled_from(["commit", "commit", "commit", "branch", "reset", "tag", "delete"]),
        st.integers(0, 3),
        st.integers(0, 9),
        messages,
    ),
    max_size=14,
)


def play(repo: frazil.Repository, steps: list[Any]) -> list[str]:
    """All versions that there are."""
    every = [repo.lookup_branch("main")]
    for what, which, number, message in steps:
        name, target = BRANCHES[which], every[number % len(every)]
        exists = name in repo.list_branches()
        match what:
            case "commit" if exists:
                text = message if number else f"{message}\nmore"
                every.append(repo.writable_session(name).commit(text, allow_empty=True))
            case "branch" if not exists:
                repo.create_branch(name, target)
            case "reset" if exists:
                repo.reset_branch(name, target)
            case "tag" if f"v{number}" not in repo.list_tags():
                repo.create_tag(f"v{number}", target)
            case "delete" if exists and which:
                repo.delete_branch(name)
    return every


@settings(max_examples=examples(60))
@given(steps=steps)
@example([("commit", 0, 1, "m" * n) for n in (59, 60, 61)])
def test_the_same_picture(steps: list[Any]) -> None:
    folder = Path(tempfile.mkdtemp(prefix="frazil-graph-"))
    try:
        ours, theirs = sides(folder)
        every = play(ours.create().repo, steps)
        theirs.open()
        refs: list[dict[str, str]] = [{}, *({"branch": name} for name in ours.repo.list_branches())]
        for ref in [*refs, {"snapshot_id": every[-1]}]:
            mine, other = (str(side.repo.ancestry_graph(**ref, plain=True)) for side in (ours, theirs))
            # It knows no name for the lane of a snapshot, and writes one all the same.
            assert mine == other.replace(" (, ", " (").replace(" ()", "")
            drawing = ours.repo.ancestry_graph(**ref)
            assert drawing._repr_svg_().count("<circle") == len(drawing.dots) == mine.count("●")
            assert len(str(drawing)) > len(mine)
    finally:
        shutil.rmtree(folder)


def test_messages_do_not_steer_the_terminal_or_the_page() -> None:
    repo = frazil.Repository.create(frazil.in_memory_storage())
    repo.writable_session("main").commit("\x1b[31m<b>&\t!", allow_empty=True)
    graph = repo.ancestry_graph(plain=True)
    assert "\x1b" not in str(graph)
    assert "[31m<b>&!" in str(graph)
    assert "&lt;b&gt;&amp;!" in graph._repr_html_()
    assert "<b>" not in graph._repr_html_()
