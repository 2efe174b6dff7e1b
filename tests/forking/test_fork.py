"""``fork()`` at bad moments: a child uses no connection, lock or thread of its parent (I9)."""

from __future__ import annotations

import ctypes
import os
import subprocess
import sys
import threading
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from . import databases
from .databases import read
from .forks import LOCKS
from .forks import PATIENCE_SECONDS
from .forks import WAIT_SECONDS
from .forks import Child
from .forks import answer
from .forks import cache_file
from .forks import child
from .forks import handles
from .forks import lock_holders
from .forks import saved
from .forks import thread
from .forks import wait_until
from .gate import halting
from .locks import locks_of

pytestmark = pytest.mark.skipif(not hasattr(os, "fork"), reason="needs fork")

Opened = Callable[..., Any]
Words = dict[int, str]

FIRST = range(1, 51)
SECOND = range(51, 101)
THIRD = range(101, 151)


def choose(words: Words, *parts: range) -> Words:
    return {oid: words[oid] for part in parts for oid in part}


def save(storage: Any) -> None:
    storage._cache.persistence.save()


def settle(storage: Any) -> None:
    storage._caretaker.wake()
    storage._caretaker.wait()


def use(storage: Any, words: Words, *parts: range) -> bool:
    """In a child: read all right, and save what the file lacks."""
    right = read(storage, choose(words, *parts)) == choose(words, *parts)
    settle(storage)
    save(storage)
    return right


def counted(storage: Any, oids: range) -> dict[str, int]:
    """How the cache did when these were read."""
    before = storage.cache_stats()
    read(storage, oids)
    after = storage.cache_stats()
    return {name: after[name] - before[name] for name in ("hits", "misses", "file_hits")}


def fill(opened: Opened, *parts: range) -> None:
    """Another process has left these in the file."""
    storage = opened()
    for part in parts:
        read(storage, part)
    storage.close()


def fork_in_c() -> int:
    """``os.fork()`` without what Python does before a fork."""
    pid: int = ctypes.PyDLL(None).fork()
    if pid == 0:
        ctypes.pythonapi.PyOS_AfterFork_Child()
    return pid


class TestWhileAnotherThread:
    """The thread is not there in the child, and what it held stays held."""

    def use(self, storage: Any, words: Words) -> bool:
        databases.renew(storage)
        return use(storage, words, FIRST, SECOND)

    def test_is_in_the_middle_of_a_write_transaction(
        self, opened: Opened, words: Words, cache: Path
    ) -> None:
        with halting("xWrite") as halt:
            storage = opened()
            read(storage, FIRST)
            databases.let_go(storage)
            with thread(lambda: halt.run(lambda: save(storage))):
                halt.wait()
                with child(lambda _: self.use(storage, words)) as forked:
                    halt.go_on()
                    assert forked.hear()
            assert saved(cache) == choose(words, FIRST, SECOND)
            read(storage, THIRD)
            storage.close()
        assert saved(cache) == choose(words, FIRST, SECOND, THIRD)

    @pytest.mark.parametrize("task", ["load", "preload"])
    def test_is_in_the_middle_of_reading_the_file(
        self, opened: Opened, words: Words, cache: Path, task: str
    ) -> None:
        fill(opened, FIRST)
        with halting("xRead") as halt:
            storage = opened()
            storage._cache.clear()
            fill(opened, THIRD)  # so that no page of before is of use
            databases.let_go(storage)
            tasks = {"load": lambda: read(storage, FIRST), "preload": storage.cache_preload}
            with thread(lambda: halt.run(tasks[task])):
                halt.wait()
                with child(lambda _: self.use(storage, words)) as forked:
                    halt.go_on()
                    assert forked.hear()
            assert read(storage, THIRD) == choose(words, THIRD)
            storage.close()
        assert saved(cache) == choose(words, FIRST, SECOND, THIRD)

    @pytest.mark.parametrize("kind", ["FileStorage", "RelStorage"])
    def test_holds_any_lock(self, opened: Opened, words: Words, cache: Path, kind: str) -> None:
        """One after the other; a fork may wait for a lock, but not for all time."""
        pytest.importorskip("relstorage")
        storage = opened(kind)
        read(storage, FIRST)
        save(storage)
        storage._cache.clear()
        read(storage, FIRST)
        locks = locks_of(storage)
        assert len(locks) > 3

        def hold(lock: Any, is_held: threading.Event, go: threading.Event) -> None:
            with lock:
                is_held.set()
                go.wait(PATIENCE_SECONDS)

        for lock in locks:
            databases.let_go(storage)
            held = threading.Event(), threading.Event()
            with thread(lambda lock=lock, held=held: hold(lock, *held)):
                assert held[0].wait(WAIT_SECONDS)
                with child(lambda _: self.use(storage, words)) as forked:
                    held[1].set()
                    assert forked.hear(), lock
        assert saved(cache) == choose(words, FIRST, SECOND)
        assert use(storage, words, FIRST, SECOND, THIRD)
        assert saved(cache) == choose(words, FIRST, SECOND, THIRD)


class TestGenerations:
    """Parents, children and theirs, in any order of their ends."""

    def test_a_child_hits_what_its_parent_had_in_memory(self, opened: Opened, words: Words) -> None:
        storage = opened()
        read(storage, FIRST)
        databases.let_go(storage)

        def task() -> Any:
            settle(storage)
            return counted(storage, FIRST)

        assert answer(task) == {"hits": len(FIRST), "misses": 0, "file_hits": 0}

    def test_a_child_reads_what_was_written_after_the_fork(
        self, opened: Opened, words: Words
    ) -> None:
        storage = opened()
        read(storage, FIRST)
        save(storage)
        databases.let_go(storage)

        def task(forked: Child) -> Any:
            settle(storage)
            forked.show("forked")
            return counted(storage, SECOND)

        with child(task) as forked:
            assert forked.hear() == "forked"
            read(storage, SECOND)
            save(storage)
            assert forked.go_on() == {"hits": len(SECOND), "misses": 0, "file_hits": len(SECOND)}

    def test_a_child_of_a_child(self, opened: Opened, words: Words, cache: Path) -> None:
        storage = opened()
        read(storage, FIRST)

        def younger() -> bool:
            return use(storage, words, FIRST, SECOND, THIRD)

        def elder() -> list[bool]:
            found = [use(storage, words, FIRST, SECOND)]
            databases.let_go(storage)
            return [*found, answer(younger), use(storage, words, FIRST, SECOND, THIRD)]

        databases.let_go(storage)
        assert answer(elder) == [True] * 3
        assert saved(cache) == choose(words, FIRST, SECOND, THIRD)
        save(storage)
        assert saved(cache) == choose(words, FIRST, SECOND, THIRD)

    @pytest.mark.parametrize("is_used_before", [True, False])
    def test_the_parent_closes_first(
        self, opened: Opened, words: Words, cache: Path, is_used_before: bool
    ) -> None:
        """It must not think that it is the last one, and take the child's WAL away."""
        storage = opened()
        read(storage, FIRST)
        save(storage)
        databases.let_go(storage)

        def task(forked: Child) -> bool:
            is_right = not is_used_before or use(storage, words, FIRST)
            forked.show("forked")
            is_right &= use(storage, words, FIRST, SECOND)
            forked.show("saved")
            storage.close()
            return is_right

        with child(task) as forked:
            assert forked.hear() == "forked"
            storage.close()
            assert forked.go_on() == "saved"
            assert saved(cache) == choose(words, FIRST, SECOND)
            another = opened()
            assert use(another, words, FIRST, SECOND, THIRD)
            assert forked.go_on()
        assert saved(cache) == choose(words, FIRST, SECOND, THIRD)

    @pytest.mark.parametrize("is_in_c", [True, False])
    def test_a_fork_in_c(
        self,
        opened: Opened,
        words: Words,
        cache: Path,
        monkeypatch: pytest.MonkeyPatch,
        is_in_c: bool,
    ) -> None:
        """uWSGI's: Python hears of it in the child alone, and what was open stays open."""
        storage = opened()
        read(storage, FIRST)
        save(storage)
        databases.let_go(storage)
        if is_in_c:
            monkeypatch.setattr(os, "fork", fork_in_c)

        def task(forked: Child) -> bool:
            is_right = use(storage, words, FIRST, SECOND)
            if set(saved(cache)) > set(FIRST) and LOCKS.exists():
                assert os.getpid() in lock_holders(cache_file(cache))
            forked.show("used")
            storage.close()
            return is_right

        with child(task) as forked:
            assert forked.hear() == "used"
            storage.close()
            assert forked.go_on()
        another = opened()
        assert use(another, words, FIRST, SECOND, THIRD)
        assert saved(cache) == choose(words, FIRST, SECOND, THIRD)

    @pytest.mark.parametrize("is_closed", [True, False])
    def test_the_child_ends_first(
        self, opened: Opened, words: Words, cache: Path, is_closed: bool
    ) -> None:
        storage = opened()
        read(storage, FIRST)
        save(storage)
        databases.let_go(storage)

        def task() -> bool:
            is_right = use(storage, words, FIRST, SECOND)
            if is_closed:
                storage.close()
            return is_right

        assert answer(task)
        assert use(storage, words, FIRST, SECOND, THIRD)
        assert saved(cache) == choose(words, FIRST, SECOND, THIRD)
        assert counted(storage, FIRST)["misses"] == 0

    def test_many_children_leave_nothing_behind(
        self, opened: Opened, words: Words, cache: Path
    ) -> None:
        storage = opened()
        use(storage, words, FIRST)
        storage._cache.clear()
        read(storage, FIRST)
        files, threads = handles(cache), threading.active_count()
        for _ in range(5):
            databases.let_go(storage)
            assert answer(lambda: use(storage, words, FIRST, SECOND))
            assert use(storage, words, FIRST)
            storage._cache.clear()
            read(storage, FIRST)
        assert handles(cache) <= files
        assert threading.active_count() == threads

    @pytest.mark.skipif(not LOCKS.exists(), reason="needs /proc/locks")
    @pytest.mark.parametrize("is_writing", [True, False])
    def test_locks_are_its_own(
        self, opened: Opened, words: Words, cache: Path, is_writing: bool
    ) -> None:
        """SQLite thinks that this process holds what its parent held."""
        fill(opened, FIRST)
        storage = opened()
        storage._cache.clear()
        read(storage, FIRST)
        databases.let_go(storage)

        def task(forked: Child) -> bool:
            if is_writing:
                use(storage, words, FIRST, SECOND)
            else:
                storage._cache.clear()
                settle(storage)
                read(storage, FIRST)
            forked.show(os.getpid())
            return True

        with child(task) as forked:
            pid = forked.hear()
            read(storage, FIRST)
            assert pid in lock_holders(cache_file(cache))
            assert forked.go_on()

    def test_each_has_a_background_thread(self, opened: Opened, words: Words, cache: Path) -> None:
        storage = opened(cache_write_seconds=0.05)
        read(storage, FIRST)
        wait_until(lambda: saved(cache) == choose(words, FIRST))
        databases.let_go(storage)

        def task(forked: Child) -> bool:
            read(storage, SECOND)
            forked.show("has read")
            return True

        with child(task) as forked:
            forked.hear()
            wait_until(lambda: saved(cache) == choose(words, FIRST, SECOND))
            read(storage, THIRD)
            wait_until(lambda: saved(cache) == choose(words, FIRST, SECOND, THIRD))
            assert forked.go_on()

    def test_both_commit(self, opened: Opened, words: Words, cache: Path) -> None:
        """What is inherited is as right as what is cached by oneself (I1)."""
        pytest.importorskip("relstorage")
        storage = opened("RelStorage")
        assert read(storage, FIRST) == choose(words, FIRST)
        save(storage)
        databases.let_go(storage)

        def task(forked: Child) -> Any:
            found = []
            for _ in range(3):
                forked.show("ready")
                found.append(read(storage, FIRST) == {**choose(words, FIRST), 1: "by the parent"})
                settle(storage)
            databases.commit(storage, {2: "by the child"})
            save(storage)
            return found

        with child(task) as forked:
            forked.hear()
            databases.commit(storage, {1: "by the parent"})
            save(storage)
            forked.go_on()
            forked.go_on()
            assert forked.go_on() == [True] * 3
        now = {**choose(words, FIRST), 1: "by the parent", 2: "by the child"}
        for _ in range(2):
            assert read(storage, FIRST) == now
            settle(storage)
        storage.close()
        again = opened("RelStorage")
        assert read(again, FIRST) == now
        assert set(saved(cache).items()) <= set(now.items())

    def test_memory_only(self, opened: Opened, words: Words) -> None:
        """There is nothing to open anew."""
        from zodbcache import wrap

        storage = opened()
        only = wrap(vars(storage)["_base"], cache_local_mb=10)
        read(only, FIRST)
        databases.let_go(only)
        with only._log._lock:
            assert answer(lambda: use(only, words, FIRST, SECOND))


ENDS = {
    "os._exit": "os._exit(0)",
    "os._exit, saved": "storage._cache.persistence.save(); os._exit(0)",
    "sys.exit": "sys.exit()",
    "an exception": "raise SystemError('the end')",
    "close": "storage.close(); sys.exit()",
}

_EXIT = """
import os, sys
import zodbcache
from forking.databases import let_go, open_base, read

path, cache, parent_ends_first = sys.argv[1:]
storage = zodbcache.wrap(
    open_base("FileStorage", path),
    cache_local_mb=10, cache_local_dir=cache, cache_write_seconds=0,
)
read(storage, range(1, 51))
let_go(storage)
reading, writing = os.pipe()
child = os.fork()
if child:
    if parent_ends_first == "False":
        os.waitpid(child, 0)
    sys.exit()
os.close(writing)
if parent_ends_first == "True":
    os.read(reading, 1)
read(storage, range(51, 101))
storage._caretaker.wake()
storage._caretaker.wait()
{end}
"""


@pytest.mark.parametrize("parent_ends_first", [True, False])
@pytest.mark.parametrize("end", ENDS)
def test_nobody_closes(
    make_database: Callable[[str], Any],
    words: Words,
    cache: Path,
    end: str,
    parent_ends_first: bool,
) -> None:
    """At the interpreter's end each saves what is its own."""
    paths = os.pathsep.join(map(os.path.abspath, [str(Path(__file__).parents[1]), *sys.path]))
    finished = subprocess.run(
        [
            sys.executable,
            "-c",
            _EXIT.format(end=ENDS[end]),
            make_database("FileStorage"),
            str(cache),
            str(parent_ends_first),
        ],
        env={**os.environ, "PYTHONPATH": paths},
        stderr=subprocess.PIPE,  # ends when the child has ended, too
        timeout=WAIT_SECONDS,
        text=True,
    )
    assert finished.returncode == 0, finished.stderr
    is_saved = end != "os._exit"
    assert saved(cache) == choose(words, FIRST, *([SECOND] if is_saved else []))
