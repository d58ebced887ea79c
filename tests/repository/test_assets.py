"""Decoded files are kept, made once however many ask, and dropped when there are too many."""

import threading

import pytest

from frazil.repository.assets import Kept


def test_what_many_ask_for_at_once_is_made_once():
    kept, made, started, go = Kept(10), [], threading.Event(), threading.Event()

    def make():
        made.append(1)
        started.set()
        assert go.wait(10)
        return "value", 1

    answers = []
    threads = [threading.Thread(target=lambda: answers.append(kept.get(b"k", make))) for _ in range(8)]
    for thread in threads:
        thread.start()
    assert started.wait(10)
    go.set()
    for thread in threads:
        thread.join(10)
    assert (answers, made) == (["value"] * 8, [1])
    assert b"k" in kept


def test_an_error_reaches_all_who_wait_and_is_not_kept():
    kept, started, go = Kept(10), threading.Event(), threading.Event()

    def fail():
        started.set()
        assert go.wait(10)
        raise OSError("no")

    errors = []

    def ask():
        try:
            kept.get(b"k", fail)
        except OSError as error:
            errors.append(str(error))

    threads = [threading.Thread(target=ask) for _ in range(4)]
    threads[0].start()
    assert started.wait(10)
    for thread in threads[1:]:
        thread.start()
    go.set()
    for thread in threads:
        thread.join(10)
    assert errors == ["no"] * 4
    assert kept.get(b"k", lambda: ("again", 1)) == "again"


def test_the_oldest_go_first_and_the_newest_always_stays():
    kept = Kept(5)
    for key, weight in ((b"a", 2), (b"b", 2), (b"a", 2), (b"c", 3)):
        kept.get(key, lambda weight=weight: (weight, weight))
    assert [key in kept for key in (b"a", b"b", b"c")] == [True, False, True]
    kept.get(b"huge", lambda: (0, 100))
    assert [key in kept for key in (b"a", b"c", b"huge")] == [False, False, True]


@pytest.mark.parametrize("asked", [1, 3])
def test_a_hit_makes_nothing(asked):
    kept = Kept(5)
    kept.keep(b"k", "kept", 1)
    assert {kept.get(b"k", lambda: pytest.fail("made again")) for _ in range(asked)} == {"kept"}
