"""Interleavings that have led caches of this kind to wrong answers, step by step.

Most run over the stepwise server and clients of :mod:`stateful.client`, where
nothing happens by itself; tids are small numbers there.
"""

from __future__ import annotations

from collections.abc import Callable
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from stateful.client import Phase
from stateful.client import Server
from stateful.client import expand
from stateful.client import nothing
from stateful.client import state_of
from stateful.world import Process
from ZEO.Exceptions import ClientDisconnected

from zodbcache.cachefile import CacheFile
from zodbcache.ids import to_bytes
from zodbcache.ids import to_int

X = 7
Y = 8
IDENTITY = "zeo:('server', 1):1"


class Stage:
    """A server, its processes and their cache file."""

    def __init__(self, directory: Path) -> None:
        self.directory = str(directory)
        self.server = Server(queue_length=100)

    def process(self, *, deltas_max: int = 1000) -> Process:
        return Process(self.server, self.directory, deltas_max, ())

    def commit(self, tid: int, *oids: int) -> None:
        """Somebody commits; the connected processes are told when it is delivered."""
        self.server.next_tid = tid
        self.server.commit(tid, {oid: state_of(f"{oid}@{tid}", 10) for oid in oids})

    def file(self) -> tuple[int, dict[int, int]]:
        """The file's checkpoint, and the tid of each row."""
        cache_file = CacheFile.open(self.directory, identity=IDENTITY, limit_bytes=10**9)
        try:
            with cache_file.snapshot() as snapshot:
                rows = {row[0]: row[1] for row in snapshot.rows(2**62, 10**9)}
                return snapshot.checkpoint, rows
        finally:
            cache_file.close()


def read(process: Process, oid: int, at: int) -> Any:
    """The tid of what a reader at *at* is given; checks that the bytes are its own."""
    found = process.storage.loadBefore(to_bytes(oid), to_bytes(at + 1))
    if found is None:
        return None
    state, tid, _ = found
    assert state == expand(state_of(f"{oid}@{to_int(tid)}", 10))
    return to_int(tid)


def in_memory(process: Process, oid: int, at: int) -> Any:
    """The tid of what memory answers at *at*, or None: a miss."""
    found = process.store.load_before(to_bytes(oid), to_bytes(at + 1))
    return found and to_int(found[1])


def save(process: Process) -> None:
    process.storage._persistence.save()


def attend(process: Process) -> None:
    """What the caretaker's thread would do now."""
    process.caretaker.woken = False
    process.caretaker.attend(quickly=False)


@pytest.fixture
def stage(tmp_path: Path) -> Stage:
    return Stage(tmp_path)


class TestSharedFile:
    def test_a_change_that_the_writer_of_the_file_did_not_see(self, stage: Stage) -> None:
        """A's row is of its checkpoint; who opens later asks what changed since that."""
        stage.commit(5, X, Y)
        stage.commit(8, Y)
        a = stage.process()
        assert read(a, X, 8) == 5
        stage.commit(9, X)
        stage.commit(10, Y)
        save(a)
        assert stage.file() == (8, {X: 5})
        b = stage.process()
        assert b.log.end == 10
        assert in_memory(b, X, 10) is None
        assert read(b, X, 10) == 9

    def test_a_row_written_behind_a_log_that_starts_later(self, stage: Stage) -> None:
        """B's log starts at 10 and cannot say what changed since the file's checkpoint."""
        stage.commit(5, X, Y)
        stage.commit(8, Y)
        a = stage.process()
        assert read(a, X, 8) == 5
        stage.commit(9, X)
        stage.commit(10, Y)
        b = stage.process()
        assert b.log.start == 10
        assert read(b, Y, 10) == 10
        save(a)
        save(b)
        assert stage.file() == (8, {X: 5}), "nothing written, nothing deleted"
        b.caretaker.woken = False
        assert read(b, X, 10) == 9
        assert b.caretaker.woken, "a miss calls it"
        attend(b)
        save(b)
        assert stage.file() == (10, {X: 9, Y: 10})
        assert read(stage.process(), X, 10) == 9

    def test_a_snapshot_held_while_the_file_is_advanced(self, stage: Stage) -> None:
        """Row and checkpoint are of one snapshot; a new one has neither."""
        stage.commit(5, X, Y)
        a = stage.process()
        read(a, X, 5)
        read(a, Y, 5)
        save(a)
        b = CacheFile.open(stage.directory, identity=IDENTITY, limit_bytes=10**9)
        with b.snapshot() as held:
            stage.commit(9, X)
            a.client.deliver()
            save(a)
            assert held.checkpoint == 5
            assert [row[:2] for row in held.rows(2**62, 10**9)] == [(X, 5), (Y, 5)]
        with b.snapshot() as anew:
            assert anew.checkpoint == 9
            assert [row[:2] for row in anew.rows(2**62, 10**9)] == [(Y, 5)]
        b.close()

    @pytest.mark.parametrize("questions", range(8))
    def test_the_file_is_advanced_between_its_checkpoint_and_its_rows(
        self, stage: Stage, questions: int
    ) -> None:
        """Before whichever of B's questions it happens."""
        stage.commit(5, X, Y)
        a = stage.process()
        read(a, X, 5)
        read(a, Y, 5)
        save(a)
        stage.commit(8, 99)
        a.client.deliver()

        def change_and_save() -> None:
            stage.commit(9, X)
            a.client.deliver()
            read(a, X, 9)
            save(a)

        quiet: list[Callable[[], None]] = [nothing] * questions
        b = Process(stage.server, stage.directory, 1000, [*quiet, change_and_save])
        b.client.on_questions.clear()
        last = stage.server.database.last_tid
        b.client.deliver()
        assert b.log.end == last
        current = stage.server.database.revisions[X][-1].tid
        assert in_memory(b, X, last) in (None, current)
        assert read(b, X, last) == current
        assert in_memory(b, Y, last) == 5
        save(b)
        assert stage.file() == (last, {X: current, Y: 5})

    def test_a_batch_queued_before_its_row_was_replaced(self, stage: Stage) -> None:
        """A has proven x@5 through 5; when it is written the file is at 9."""
        stage.commit(5, X)
        a = stage.process()
        c = stage.process()
        read(a, X, 5)
        read(c, X, 5)
        save(c)
        assert stage.file() == (5, {X: 5})
        cache_file = a.storage._persistence._file
        advance = cache_file.advance

        def advance_later(*arguments: Any) -> Any:
            stage.commit(9, X)
            c.client.deliver()
            read(c, X, 9)
            save(c)
            return advance(*arguments)

        cache_file.advance = advance_later
        save(a)
        assert stage.file() == (9, {X: 9})

    def test_a_writer_behind_the_file(self, stage: Stage) -> None:
        stage.commit(5, X, Y)
        stage.commit(7, 99)
        a = stage.process()
        b = stage.process()
        read(a, X, 7)
        stage.commit(12, Y)
        b.client.deliver()
        read(b, Y, 12)
        save(b)
        assert stage.file() == (12, {Y: 12})
        save(a)
        assert a.log.end == 7
        assert stage.file() == (12, {Y: 12})


class TestReading:
    def test_only_the_last_of_two_changes_is_known(self, stage: Stage) -> None:
        """What is known of x is that it changed by 9: not that it lived until then."""
        stage.commit(3, X)
        stage.commit(6, Y)
        process = stage.process()
        assert read(process, X, 6) == 3
        process.client.disconnect()
        stage.commit(7, X)
        stage.commit(9, X)
        stage.server.queue_length = 5
        process.client.connect()
        attend(process)
        assert process.log.names_since(6) == [(X, 9)]
        assert in_memory(process, X, 8) is None
        assert read(process, X, 6) == 3, "the pinned reader"
        assert read(process, X, 8) == 7
        assert read(process, X, 9) == 9
        assert [in_memory(process, X, at) for at in (6, 8, 9)] == [3, 7, 9]

    def test_a_pushed_change_does_not_end_what_changed_before(self, stage: Stage) -> None:
        stage.commit(3, X)
        process = stage.process()
        read(process, X, 3)
        process.client._push(9, [to_bytes(X)])  # as quick verification names it
        assert in_memory(process, X, 8) is None


class TestReconnection:
    """ZEO with its own cache empty: the last tid jumps before anybody says so."""

    @pytest.fixture
    def process(self, stage: Stage) -> Iterator[Process]:
        """Has x@5, and a checkpoint of 8; then x changes at 9 without the process."""
        stage.commit(5, X, Y)
        stage.commit(8, Y)
        process = stage.process()
        assert read(process, X, 8) == 5
        assert read(process, Y, 8) == 8
        process.client.disconnect()
        stage.commit(9, X)
        yield process
        process.store.check()

    @pytest.mark.parametrize("quick_verification", [False, True])
    @pytest.mark.parametrize("pushed", [False, True])
    def test_every_step_of_it(
        self, stage: Stage, process: Process, quick_verification: bool, pushed: bool
    ) -> None:
        client = process.client
        client.step(quick_verification=quick_verification)
        assert client.phase is Phase.REGISTERED
        if pushed:
            stage.commit(11, Y)  # queued by the client until it has verified
        for phase in (Phase.READY, Phase.NOTIFIED, Phase.OPERATIONAL):
            client.step(quick_verification=quick_verification)
            assert client.phase is phase
            client.deliver()
            at = client.last_tid
            assert at >= 9, "a poll here reads at the new tid"
            assert in_memory(process, X, at) is None
            assert in_memory(process, X, 9) is None
            assert in_memory(process, X, 8) == 5, "nothing was cleared"
            if phase is not Phase.OPERATIONAL:
                with pytest.raises(ClientDisconnected):
                    read(process, X, at)
        assert read(process, X, 9) == 9
        assert read(process, X, 8) == 5, "between the two tids"
        attend(process)
        assert not process.log.broken
        last = 11 if pushed else 9
        assert process.log.end == last
        assert read(process, X, last) == 9
        assert read(process, Y, last) == (11 if pushed else 8)
        assert in_memory(process, X, last) == 9
        stage.commit(13, Y)
        client.deliver()
        assert in_memory(process, X, 13) == 9

    def test_an_answer_from_before_the_disconnection(self, stage: Stage, process: Process) -> None:
        """ZEO's own cache had it; it is put into memory when all is over."""

        def reconnect_and_mend() -> None:
            process.client.connect()
            attend(process)

        process.store.clear()
        process.client.answers_stale = True
        process.client.after_answer = reconnect_and_mend
        assert read(process, X, 8) == 5
        assert process.log.end == 9
        assert in_memory(process, X, 9) is None
        process.client.answers_stale = False
        assert read(process, X, 9) == 9

    def test_an_own_commit_before_the_gap_is_known(self, stage: Stage, process: Process) -> None:
        """Its tid does not say when what it replaced had ended."""
        process.client.connect()
        change = process.log.name(12, [to_bytes(X)])
        stage.commit(12, X)
        process.client.inbox.clear()
        change.exact = True
        process.log.advance(12)
        assert process.log.end == 8
        attend(process)
        assert in_memory(process, X, 8) in (None, 5)
        assert in_memory(process, X, 10) is None
        assert read(process, X, 11) == 9

    def test_it_breaks_again_while_the_server_is_asked(
        self, stage: Stage, process: Process
    ) -> None:
        def lose_another_change() -> None:
            process.client.disconnect()
            stage.commit(stage.server.database.last_tid + 1, Y)
            process.client.connect()

        for questions in range(6):
            read_before = process.log.end
            process.client.connect()
            read(process, Y, process.client.last_tid)
            quiet: list[Callable[[], None]] = [nothing] * questions
            process.client.on_questions.extend([*quiet, lose_another_change])
            attend(process)
            process.client.on_questions.clear()
            while process.caretaker.woken:
                attend(process)
            last = stage.server.database.last_tid
            assert process.log.end == last >= read_before
            current = stage.server.database.revisions[Y][-1].tid
            assert in_memory(process, Y, last) in (None, current)
            assert read(process, Y, last) == current
            process.client.disconnect()

    def test_the_caretaker_comes_before_the_connection_can_be_used(
        self, stage: Stage, process: Process
    ) -> None:
        """It is woken by invalidateCache(); a moment later calls are possible.

        Nothing else may ever happen: the log must become whole all the same.
        """
        client = process.client
        while client.phase is not Phase.NOTIFIED:
            client.step()
        assert process.caretaker.woken
        attend(process)
        client.step()
        assert client.phase is Phase.OPERATIONAL
        for _ in range(10):
            read(process, X, client.last_tid)
            if process.caretaker.woken:
                attend(process)
        assert not process.log.broken
        assert in_memory(process, X, 9) == 9

    def test_the_server_comes_back_from_an_older_backup(self, stage: Stage) -> None:
        """Its history is another one from some tid on: what was cached of it is void."""
        stage.commit(5, X, Y)
        process = stage.process()
        backup = stage.server.backup()
        stage.commit(8, X)
        process.client.deliver()
        assert read(process, X, 8) == 8
        process.client.disconnect()
        stage.server.clients.remove(process.client)
        stage.server.swap(backup)
        stage.server.clients.append(process.client)
        process.client.connect()
        attend(process)
        for tid in (12, 13):
            stage.commit(tid, Y)
            process.client.deliver()
            if process.caretaker.woken:
                attend(process)
            assert read(process, X, tid) == 5

    def test_the_older_backup_has_new_commits(self, stage: Stage) -> None:
        stage.commit(5, X, Y)
        process = stage.process()
        backup = stage.server.backup()
        stage.commit(8, X)
        process.client.deliver()
        assert read(process, X, 8) == 8
        process.client.disconnect()
        stage.server.clients.remove(process.client)
        stage.server.swap(backup)
        stage.commit(12, Y)
        stage.server.clients.append(process.client)
        process.client.connect()
        attend(process)
        assert read(process, X, 12) == 5


class TestRestoredDatabases:
    def test_an_older_backup_with_new_commits(self, stage: Stage) -> None:
        stage.commit(5, X, Y)
        backup = stage.server.backup()
        stage.commit(8, X)
        a = stage.process()
        assert read(a, X, 8) == 8
        assert read(a, Y, 8) == 5
        a.storage.close()
        stage.server.swap(backup)
        stage.commit(12, Y)
        b = stage.process()
        assert in_memory(b, X, 12) is None
        assert read(b, X, 12) == 5
        assert read(b, Y, 12) == 12
        b.storage.close()
        assert stage.file() == (12, {X: 5, Y: 12})

    def test_an_older_backup_behind_the_file(self, stage: Stage) -> None:
        stage.commit(5, X, Y)
        backup = stage.server.backup()
        stage.commit(8, X)
        a = stage.process()
        read(a, X, 8)
        a.storage.close()
        stage.server.swap(backup)
        b = stage.process()
        assert read(b, X, 5) == 5
        stage.commit(12, Y)
        b.client.deliver()
        assert read(b, X, 12) == 5

    def test_an_older_backup_keeps_what_is_proven(self, stage: Stage) -> None:
        """Only new objects were lost: what both histories share stays warm."""
        stage.commit(5, X, Y)
        backup = stage.server.backup()
        stage.commit(8, 99)
        a = stage.process()
        for oid in (X, Y, 99):
            read(a, oid, 8)
        a.storage.close()
        stage.server.swap(backup)
        stage.commit(12, Y)
        b = stage.process()
        assert in_memory(b, X, 12) == 5
        assert in_memory(b, Y, 12) is None
        assert in_memory(b, 99, 12) is None
        b.storage.close()
        assert stage.file() == (12, {X: 5})

    def test_two_copies_that_have_diverged(self, stage: Stage) -> None:
        """Opened in turns over one file: each sees its own revisions."""
        stage.commit(5, X, Y, 9)
        other = stage.server.backup()
        expected: dict[int, dict[int, int]] = {0: {X: 5, Y: 5, 9: 5}, 1: {X: 5, Y: 5, 9: 5}}
        for turn in range(8):
            side = turn % 2
            tid = 10 + 3 * turn
            changed = (X, Y) if turn % 4 == 0 else (Y,) if turn % 4 == 1 else (X,)
            stage.commit(tid, *changed)
            for oid in changed:
                expected[side][oid] = tid
            process = stage.process()
            for oid, right in expected[side].items():
                assert in_memory(process, oid, tid) in (None, right)
                assert read(process, oid, tid) == right
            process.storage.close()
            stage.server.swap(other)
            stage.server.next_tid = tid


class TestPackElsewhere:
    """What another client's pack collects is announced to nobody."""

    def test_it_collects_the_newest_object(self, stage: Stage) -> None:
        stage.commit(5, X, Y)
        worker = stage.process()
        read(worker, X, 5)
        read(worker, Y, 5)
        stage.commit(8, 99)
        worker.client.deliver()
        read(worker, 99, 8)
        stage.server.database.collect([99])
        assert read(worker, X, 8) == 5
        worker.storage.close()
        stage.server.restart()
        assert stage.server.database.last_tid == 5
        again = stage.process()
        assert in_memory(again, 99, 5) is None
        assert [in_memory(again, oid, 5) for oid in (X, Y)] == [5, 5], "warmth is kept"
        stage.commit(12, Y)
        again.client.deliver()
        assert in_memory(again, X, 12) == 5
        assert in_memory(again, Y, 12) is None
        again.storage.close()
        assert stage.file()[0] == 12

    def test_the_server_goes_on(self, stage: Stage) -> None:
        stage.commit(5, X, Y)
        worker = stage.process()
        read(worker, X, 5)
        stage.commit(8, 99)
        worker.client.deliver()
        stage.server.database.collect([99])
        worker.storage.close()
        stage.commit(12, Y)
        again = stage.process()
        assert in_memory(again, X, 12) == 5
        assert read(again, Y, 12) == 12
