"""gunicorn with ``--preload``: what its processes read, and what they leave in the file."""

from __future__ import annotations

import os
import signal
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from . import databases
from .forks import LOCKS
from .forks import cache_file
from .forks import lock_holders
from .forks import saved
from .forks import wait_until
from .server import Gunicorn

pytestmark = pytest.mark.skipif(not hasattr(os, "fork"), reason="needs fork")

Opened = Callable[..., Any]
Serve = Callable[..., Gunicorn]
Words = dict[int, str]

WARM = list(range(1, 51))
PARTS = [list(range(51, 81)), list(range(81, 111)), list(range(111, 141))]
PARENTS = list(range(141, 171))
REST = list(range(171, 201))


def check(answer: dict[str, Any], words: Words, oids: list[int]) -> None:
    """It has read just these, and each right."""
    assert answer["words"] == {str(oid): words[oid] for oid in oids}
    assert answer["hits"] + answer["misses"] == len(oids)


def check_part(answer: dict[str, Any], words: Words) -> None:
    check(answer, words, [int(oid) for oid in answer["words"]])
    assert answer["misses"] == len(answer["words"])


def check_file(opened: Opened, cache: Path, kind: str, words: Words) -> None:
    """It holds these, and another process has them from it."""
    assert saved(cache) == words
    storage = opened(kind)
    assert databases.read(storage, words) == words
    assert storage.cache_stats()["misses"] == 0


@pytest.mark.parametrize("kind", ["FileStorage", "RelStorage"])
class TestOpenedInTheParent:
    """The children read through the storage, and from the memory, that they inherit."""

    def test_all_save_at_the_end(
        self, serve: Serve, opened: Opened, words: Words, kind: str
    ) -> None:
        gunicorn = serve(kind, warm=WARM)
        gunicorn.ask_children("settle")
        for answer in gunicorn.ask_children("read", [WARM]).values():
            check(answer, words, WARM)
            assert answer["misses"] == answer["file_hits"] == 0, "it was inherited"
        for answer in gunicorn.ask_children("read", PARTS).values():
            check_part(answer, words)
        check_part(gunicorn.ask_parent("read", PARENTS), words)
        gunicorn.stop()
        union = [*WARM, *PARTS[0], *PARTS[1], *PARTS[2], *PARENTS]
        check_file(opened, gunicorn.cache, kind, {oid: words[oid] for oid in union})

    def test_each_writes_behind_and_reads_what_the_others_wrote(
        self, serve: Serve, opened: Opened, words: Words, kind: str
    ) -> None:
        gunicorn = serve(kind, warm=WARM, write_seconds=0.05)
        for answer in gunicorn.ask_children("read", PARTS).values():
            check_part(answer, words)
        check_part(gunicorn.ask_parent("read", PARENTS), words)
        union = [*WARM, *PARTS[0], *PARTS[1], *PARTS[2], *PARENTS]
        wait_until(lambda: set(saved(gunicorn.cache)) == set(union))
        gunicorn.ask_children("clear")
        gunicorn.ask_parent("clear")
        for answer in (
            *gunicorn.ask_children("read", [union]).values(),
            gunicorn.ask_parent("read", union),
        ):
            check(answer, words, union)
            assert answer["misses"] == 0
            assert answer["file_hits"] > 0
        if LOCKS.exists():  # SQLite would think that a child holds what its parent held
            processes = {gunicorn.pid, *gunicorn.ask_children("settle")}
            assert lock_holders(cache_file(gunicorn.cache)) == processes
        gunicorn.stop()
        check_file(opened, gunicorn.cache, kind, {oid: words[oid] for oid in union})

    def test_a_child_is_killed_and_another_takes_its_place(
        self, serve: Serve, opened: Opened, words: Words, kind: str
    ) -> None:
        """The parent forks once more, with its file in use and a thread of its own."""
        gunicorn = serve(kind, warm=WARM, write_seconds=0.05)
        first = gunicorn.ask_children("read", PARTS)
        check_part(gunicorn.ask_parent("read", PARENTS), words)
        for pid in first:
            os.kill(pid, signal.SIGKILL)
        gunicorn.ask_children("settle")
        later = gunicorn.ask_children("read", [[*WARM, *PARENTS]])
        assert not set(first) & set(later)
        for answer in later.values():
            check(answer, words, [*WARM, *PARENTS])
            assert answer["misses"] == 0
        gunicorn.ask_children("read", [REST])
        check(gunicorn.ask_parent("read", WARM), words, WARM)
        gunicorn.stop()
        assert set(saved(gunicorn.cache)) >= {*WARM, *PARENTS, *REST}


@pytest.mark.parametrize("opens", ["children", "both"])
@pytest.mark.parametrize("kind", ["ZEO", "RelStorage"])
def test_opened_in_each_child(
    serve: Serve, opened: Opened, words: Words, kind: str, opens: str
) -> None:
    """Nothing is done with what a child has inherited, not at its end either."""
    gunicorn = serve(kind, opens=opens, warm=WARM)
    children = gunicorn.ask_children("read", PARTS)
    for answer in children.values():
        check_part(answer, words)
    base = databases.open_base(kind, gunicorn.job["address"])
    databases.commit(base, {oid: f"changed {oid}" for oid in WARM[:10]})
    words |= {oid: f"changed {oid}" for oid in WARM[:10]}
    base.close()
    union = [*WARM, *PARTS[0], *PARTS[1], *PARTS[2]]
    heard = gunicorn.ask_children("wait_for", [words[1]])
    assert set(heard) == set(children)
    for answer in gunicorn.ask_children("read", [union]).values():
        check(answer, words, union)
    if opens == "both":
        gunicorn.ask_parent("wait_for", words[1])
        check(gunicorn.ask_parent("read", union), words, union)
    gunicorn.stop()
    check_file(opened, gunicorn.cache, kind, {oid: words[oid] for oid in union})
