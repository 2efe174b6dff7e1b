"""What was to be written leaves memory meanwhile."""

from __future__ import annotations

import pytest

from ..stepping import MOMENTS
from ..stepping import Database
from ..stepping import check_file
from ..stepping import check_reads
from .writer import ALL
from .writer import BETWEEN
from .writer import Open
from .writer import Writer
from .writer import X
from .writer import Z
from .writer import loads
from .writer import unsaved


@pytest.mark.parametrize("moment", ["packed", "inserted"])
def test_memory_is_emptied_while_its_rows_are_written(a: Writer, moment: str) -> None:
    """The writer has a copy of what it writes."""
    with a.writing(moment):
        a.store.clear()
        a.store.check()
    assert check_file(a) == (8, ALL)
    assert loads(a, ALL, 9) == 0
    assert unsaved(a) == 0
    check_reads(a)


@pytest.mark.usefixtures("one_by_one")
def test_memory_is_emptied_between_two_transactions(a: Writer) -> None:
    with a.writing(BETWEEN):
        a.store.clear()
    assert len(check_file(a)[1]) == 1
    assert unsaved(a) == 0
    a.read_all()
    a.write()
    assert check_file(a) == (8, ALL)


def test_memory_goes_while_the_file_is_ahead(a: Writer, opened: Open) -> None:
    """A batch that is refused leaves nothing unsaved of what is in memory no more."""
    c = opened()
    with a.writing("begun"):
        a.database.commit(9, [X])
        c.hear(9)
        assert c.persistence.save() == 9
        a.store.clear()
        a.load(Z, 9)
    assert unsaved(a) == len(a.database.state(Z, 3))
    a.hear(9)
    a.write()
    assert check_file(a) == (9, {Z: 3})


class TestTinyMemory:
    """Much more is read than memory holds: the file has it, for all processes."""

    OIDS = range(1, 61)

    @pytest.fixture
    def database(self) -> Database:
        return Database({5: self.OIDS}, filler=b"." * 50_000)

    def read_and_write(self, worker: Writer) -> None:
        """Each object where the process is; before the next one can take its place."""
        before = worker.log.end + 1
        for oid in self.OIDS:
            found, expected = worker.load(oid, before), worker.database.revision(oid, before)
            assert found is not None and expected is not None
            assert found[0] == expected[0]
            worker.write()

    def test_what_was_evicted_is_in_the_file(self, opened: Open) -> None:
        a, b = opened(Writer), opened(Writer)
        self.read_and_write(a)
        assert a.cache.stats()["evictions"] > 0
        assert sum(a.is_held(oid, 5) for oid in self.OIDS) < len(self.OIDS) / 2
        assert check_file(a) == (5, dict.fromkeys(self.OIDS, 5))
        for worker in (a, b):
            assert loads(worker, dict.fromkeys(self.OIDS, 5), 6) == 0
            worker.store.check()
        assert unsaved(a) == unsaved(b) == 0
        assert b.cache.stats()["evictions"] > 0

    def test_much_does_not_wait(self, opened: Open) -> None:
        """The thread is woken before it is evicted."""
        a = opened(Writer)
        a.cache.writer._threshold = 220_000
        a.load(1, 6)
        assert a.cache.writer._thread is not None
        a.turns.ended.clear()
        for oid in (2, 3, 4):
            a.load(oid, 6)
        assert not a.cache.writer._woken.is_set()
        a.load(5, 6)
        a.end_round()
        assert check_file(a) == (5, dict.fromkeys(range(1, 6), 5))
        assert unsaved(a) == 0

    def test_changes_go_on(self, opened: Open) -> None:
        """Each writes what it read, and deletes what it knows to have changed."""
        a, b = opened(Writer), opened(Writer)
        current = dict.fromkeys(self.OIDS, 5)
        for number, worker in enumerate((a, b, a, b)):
            self.read_and_write(worker)
            tid, oids = 10 + number, list(self.OIDS)[number::4]
            a.database.commit(tid, oids)
            a.hear(tid)
            if number % 2:  # the other hears of two at once
                b.hear(tid - 1)
                b.hear(tid)
            current.update(dict.fromkeys(oids, tid))
            check_file(a)
        for worker in (a, b):
            self.read_and_write(worker)
            worker.store.check()
        assert check_file(a) == (13, current)
        assert loads(a, current, 14) == loads(b, current, 14) == 0

    @pytest.mark.parametrize("moment", MOMENTS)
    def test_eviction_while_rows_are_written(self, opened: Open, moment: str) -> None:
        """Other objects take the place of those that are on their way to the file."""
        a = opened(Writer)
        first = dict.fromkeys(list(self.OIDS)[:10], 5)
        loads(a, first, 6)
        with a.writing(moment):
            for _ in range(3):
                for oid in list(self.OIDS)[10:]:
                    a.load(oid, 6)
            a.store.check()
        rows = check_file(a)[1]
        if moment in ("packed", "inserted", "committed"):
            assert rows.keys() >= first.keys()
            assert loads(a, first, 6) == 0
        a.write()
        a.store.check()
        for oid in self.OIDS:
            assert oid in check_file(a)[1] or not a.is_held(oid, 5), "held, and not saved"
        assert unsaved(a) == 0
