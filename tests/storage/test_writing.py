"""Commits through the wrapper, past it, and such as fail: what is read afterwards is the base's."""

from __future__ import annotations

import pickle
from time import time

import pytest
from ZODB.blob import Blob
from ZODB.blob import BlobStorage
from ZODB.Connection import TransactionMetaData
from ZODB.DemoStorage import DemoStorage
from ZODB.FileStorage import FileStorage
from ZODB.interfaces import IStorageIteration
from ZODB.MappingStorage import MappingStorage
from ZODB.POSException import ConflictError
from ZODB.POSException import POSKeyError
from ZODB.POSException import ReadConflictError
from ZODB.serialize import referencesf
from ZODB.tests.ConflictResolution import PCounter
from ZODB.tests.StorageTestBase import zodb_pickle
from ZODB.utils import maxtid
from ZODB.utils import p64
from ZODB.utils import u64
from ZODB.utils import z64

from .helpers import after
from .helpers import agree
from .helpers import asked
from .helpers import begun
from .helpers import commit
from .helpers import current
from .helpers import finished
from .helpers import hits
from .helpers import now
from .helpers import record
from .helpers import rows
from .helpers import wrap

ONE, TWO, THREE = (p64(number) for number in (1, 2, 3))


@pytest.fixture
def file_base(tmp_path):
    base = FileStorage(str(tmp_path / "Data.fs"))
    yield base
    base.close()


@pytest.fixture
def over_file(file_base, cache_dir):
    storage = wrap(file_base, cache_dir)
    yield storage
    storage.close()


def counter(value):
    made = PCounter()
    made.inc(value)
    return zodb_pickle(made)


class TestOwnCommits:
    def test_what_was_committed_is_read_without_the_base(self, storage, base):
        commit(storage, (ONE, record(1)), (TWO, record(2)))
        assert hits(storage, ONE, now(storage)) == 1
        agree(storage, base, [ONE, TWO])

    def test_the_revision_before_ends_exactly_there(self, storage, base):
        first = commit(storage, (ONE, record(1)))
        second = commit(storage, (ONE, record(2)))
        assert hits(storage, ONE, second) == 1
        assert storage.loadBefore(ONE, second) == (record(1), first, second)
        agree(storage, base, [ONE])

    def test_storing_twice_in_a_transaction(self, storage, base):
        transaction = begun(storage)
        storage.store(ONE, z64, record(1), "", transaction)
        storage.store(ONE, z64, record(2), "", transaction)
        finished(storage, transaction)
        agree(storage, base, [ONE])

    def test_the_callback_gets_the_tid_once_and_the_caller_too(self, storage):
        transaction = begun(storage)
        storage.store(ONE, z64, record(1), "", transaction)
        storage.tpc_vote(transaction)
        heard = []
        tid = storage.tpc_finish(transaction, heard.append)
        assert heard == [tid]
        assert storage.loadBefore(ONE, after(tid))[1] == tid

    def test_nothing_is_visible_before_the_base_has_finished(self, storage, base):
        """I3: neither inside the callback, whichever way the base goes about it."""
        commit(storage, (ONE, record(1)))
        transaction = begun(storage)
        storage.store(ONE, current(base, ONE), record(2), "", transaction)
        storage.tpc_vote(transaction)
        before = now(base)
        told = {}

        def callback(tid):
            told["cache"] = storage._store.load_before(ONE, after(tid))
            told["older"] = storage._store.load_before(ONE, before)

        tid = storage.tpc_finish(transaction, callback)
        assert told["cache"] is None
        assert told["older"] is not None and told["older"][0] == record(1)
        assert storage.loadBefore(ONE, after(tid))[0] == record(2)
        agree(storage, base, [ONE])

    def test_an_empty_transaction(self, storage, base):
        commit(storage, (ONE, record(1)))
        commit(storage)
        agree(storage, base, [ONE])

    def test_own_tids(self, storage, base):
        """As zodbconvert gives them, and some below what the log has passed."""
        commit(storage, (ONE, record(1)))
        last = u64(base.lastTransaction())
        for tid, oid in (
            (last + 10, ONE),
            (last + 5, TWO),
            (last + 20, THREE),
            (last + 15, ONE),
        ):
            transaction = TransactionMetaData()
            storage.tpc_begin(transaction, p64(tid))
            storage.store(oid, current(base, oid), record(tid), "", transaction)
            finished(storage, transaction)
            agree(storage, base, [ONE, TWO, THREE])


class TestAborted:
    def test_leaves_nothing(self, storage, base):
        commit(storage, (ONE, record(1)))
        transaction = begun(storage)
        storage.store(ONE, current(base, ONE), record(2), "", transaction)
        storage.store(TWO, z64, record(2), "", transaction)
        storage.tpc_abort(transaction)
        assert hits(storage, ONE, now(storage)) == 1
        assert storage.loadBefore(ONE, now(storage))[0] == record(1)
        with pytest.raises(POSKeyError):
            storage.loadBefore(TWO, maxtid)
        assert storage._writing == {}
        agree(storage, base, [ONE])

    def test_after_the_vote_leaves_nothing(self, storage, base):
        commit(storage, (ONE, record(1)))
        transaction = begun(storage)
        storage.store(ONE, current(base, ONE), record(2), "", transaction)
        storage.tpc_vote(transaction)
        storage.tpc_abort(transaction)
        assert storage._writing == {}
        commit(storage, (TWO, record(3)))
        agree(storage, base, [ONE, TWO])

    def test_is_forgotten_when_the_next_begins(self, storage, base):
        transaction = begun(storage)
        storage.store(ONE, z64, record("aborted"), "", transaction)
        storage.tpc_abort(transaction)
        storage.tpc_begin(transaction)
        storage.store(TWO, z64, record("kept"), "", transaction)
        finished(storage, transaction)
        agree(storage, base, [TWO])
        with pytest.raises(POSKeyError):
            storage.loadBefore(ONE, maxtid)

    @pytest.mark.parametrize("calls_back", [False, True])
    def test_a_failing_tpc_finish(self, storage, base, calls_back):
        """The base calls back and then fails: nobody knows, and nothing wrong is served."""
        commit(storage, (ONE, record(1)))
        transaction = begun(storage)
        storage.store(ONE, current(base, ONE), record(2), "", transaction)
        storage.tpc_vote(transaction)
        original = base.tpc_finish

        def failing(transaction, callback):
            if calls_back:
                callback(p64(u64(base.lastTransaction()) + 1))
            raise OSError("the disk is gone")

        base.tpc_finish = failing
        with pytest.raises(OSError):
            storage.tpc_finish(transaction)
        base.tpc_finish = original
        storage.tpc_abort(transaction)
        assert storage._writing == {}
        agree(storage, base, [ONE])
        commit(storage, (TWO, record(2)))
        agree(storage, base, [ONE, TWO])
        commit(storage, (ONE, record(3)))
        agree(storage, base, [ONE, TWO])
        assert hits(storage, ONE, now(storage)) == 1

    def test_a_failing_callback(self, over_file, file_base):
        commit(over_file, (ONE, record(1)))
        transaction = begun(over_file)
        over_file.store(ONE, current(file_base, ONE), record(2), "", transaction)
        over_file.tpc_vote(transaction)

        def failing(tid):
            raise RuntimeError("the database's fault")

        with pytest.raises(RuntimeError):
            over_file.tpc_finish(transaction, failing)
        over_file.tpc_abort(transaction)
        agree(over_file, file_base, [ONE])
        commit(over_file, (TWO, record(2)))
        agree(over_file, file_base, [ONE, TWO])

    def test_a_tpc_finish_that_fails_after_the_commit(self, storage, base):
        """Committed, but the caller was told otherwise: a network that broke in between."""
        commit(storage, (ONE, record(1)))
        transaction = begun(storage)
        storage.store(ONE, current(base, ONE), record(2), "", transaction)
        storage.tpc_vote(transaction)
        original = base.tpc_finish

        def failing(transaction, callback):
            original(transaction, callback)
            raise OSError("the answer was lost")

        base.tpc_finish = failing
        with pytest.raises(OSError):
            storage.tpc_finish(transaction)
        base.tpc_finish = original
        agree(storage, base, [ONE], ends=False)
        commit(storage, (TWO, record(2)))
        agree(storage, base, [ONE, TWO])


class TestBytesOfTheBase:
    """I4: what the base changed while committing is never taken from the caller."""

    def test_resolved_conflicts(self, over_file, file_base):
        first = commit(over_file, (ONE, counter(1)))
        commit(over_file, (ONE, counter(3)))
        transaction = begun(over_file)
        over_file.store(ONE, first, counter(6), "", transaction)  # 1 -> 3 and 1 -> 6
        assert over_file.tpc_vote(transaction) == [ONE]
        tid = over_file.tpc_finish(transaction)
        state, serial, _ = over_file.loadBefore(ONE, after(tid))
        assert serial == tid
        assert state == counter(8) != counter(6)
        agree(over_file, file_base, [ONE])

    def test_resolved_conflicts_of_a_demostorage(self):
        base = DemoStorage()
        storage = wrap(base)
        first = commit(storage, (ONE, counter(1)))
        commit(storage, (ONE, counter(3)))
        commit(storage, (ONE, counter(6)), serials={ONE: first})
        assert storage.loadBefore(ONE, now(storage))[0] == counter(8)
        agree(storage, base, [ONE])
        storage.close()

    def test_a_vote_that_names_what_the_base_changed(self):
        """A base that alters bytes and says so, as the interface demands."""

        class Altering(MappingStorage):
            def store(self, oid, serial, data, version, transaction):
                super().store(oid, serial, data + b"altered", version, transaction)

            def tpc_vote(self, transaction):
                super().tpc_vote(transaction)
                return list(self._tdata)

        base = Altering()
        storage = wrap(base)
        tid = commit(storage, (ONE, record(1)))
        assert storage.loadBefore(ONE, after(tid))[0] == record(1) + b"altered"
        agree(storage, base, [ONE])
        storage.close()

    def test_undone(self, over_file, file_base):
        commit(over_file, (ONE, record(1)))
        commit(over_file, (ONE, record(2)))
        transaction = begun(over_file)
        over_file.undo(over_file.undoInfo(0, 1)[0]["id"], transaction)
        tid = finished(over_file, transaction)
        assert over_file.loadBefore(ONE, after(tid))[:2] == (record(1), tid)
        agree(over_file, file_base, [ONE])

    def test_undone_and_stored_in_one_transaction(self, over_file, file_base):
        commit(over_file, (ONE, record(1)), (TWO, record(1)))
        commit(over_file, (ONE, record(2)))
        transaction = begun(over_file)
        over_file.store(TWO, current(file_base, TWO), record(5), "", transaction)
        over_file.undo(over_file.undoInfo(0, 1)[0]["id"], transaction)
        finished(over_file, transaction)
        agree(over_file, file_base, [ONE, TWO])
        assert over_file.loadBefore(TWO, now(over_file))[0] == record(5)

    def test_undoing_the_creation(self, over_file, file_base):
        commit(over_file, (TWO, record(1)))
        commit(over_file, (ONE, record(1)))
        transaction = begun(over_file)
        over_file.undo(over_file.undoInfo(0, 1)[0]["id"], transaction)
        tid = finished(over_file, transaction)
        assert asked(over_file, ONE, after(tid)) == asked(file_base, ONE, after(tid))
        agree(over_file, file_base, [ONE, TWO])

    def test_undone_bytes_are_the_bases(self, over_file, file_base):
        """Even if the base undoes to something that nobody ever stored."""
        commit(over_file, (ONE, record(1)))

        def undo(transaction_id, transaction):
            serial = current(file_base, ONE)
            file_base.store(ONE, serial, record("merged"), "", transaction)
            return None, [ONE]

        file_base.undo = undo
        transaction = begun(over_file)
        over_file.undo(b"any", transaction)
        finished(over_file, transaction)
        assert over_file.loadBefore(ONE, now(over_file))[0] == record("merged")

    def test_restored(self, over_file, file_base):
        first = commit(over_file, (ONE, record(1)))
        commit(over_file, (ONE, record(2)))
        tid = p64(u64(file_base.lastTransaction()) + 10)
        transaction = TransactionMetaData()
        over_file.tpc_begin(transaction, tid, " ")
        over_file.restore(ONE, tid, record("not taken"), "", first, transaction)
        finished(over_file, transaction)
        state = over_file.loadBefore(ONE, after(tid))[0]
        assert state == file_base.loadBefore(ONE, after(tid))[0]
        agree(over_file, file_base, [ONE])

    def test_restored_bytes_are_the_bases(self, over_file, file_base):
        original = file_base.restore

        def altering(oid, serial, data, version, previous, transaction):
            return original(oid, serial, data + b"altered", version, previous, transaction)

        file_base.restore = altering
        transaction = TransactionMetaData()
        tid = p64(100)
        over_file.tpc_begin(transaction, tid, " ")
        over_file.restore(ONE, tid, record(1), "", None, transaction)
        finished(over_file, transaction)
        assert over_file.loadBefore(ONE, after(tid))[0] == record(1) + b"altered"

    def test_copied(self, over_file, file_base, tmp_path):
        source = FileStorage(str(tmp_path / "Source.fs"))
        for value in range(4):
            commit(source, (ONE, record(value)), (p64(10 + value), record(value)))
        transaction = begun(source)
        source.undo(source.undoInfo(0, 1)[0]["id"], transaction)
        finished(source, transaction)
        over_file.copyTransactionsFrom(source)
        oids = [ONE, *(p64(10 + value) for value in range(4))]
        agree(over_file, file_base, oids)
        for oid in oids:
            before = now(source)
            assert asked(over_file, oid, before) == asked(source, oid, before)
        source.close()

    def test_copied_into_what_is_cached_already(self, over_file, file_base, tmp_path):
        source = FileStorage(str(tmp_path / "Source.fs"))
        commit(source, (ONE, record("copied")))
        commit(over_file, (TWO, record(1)))  # a newer tid than the copied one
        over_file.copyTransactionsFrom(source)
        agree(over_file, file_base, [ONE, TWO])
        source.close()

    def test_stored_and_restored_blobs(self, tmp_path):
        source = BlobStorage(str(tmp_path / "source"), FileStorage(str(tmp_path / "Source.fs")))
        base = FileStorage(str(tmp_path / "Data.fs"), blob_dir=str(tmp_path / "blobs"))
        storage = wrap(base)

        def blob_file(value):
            path = tmp_path / f"{value}.tmp"
            path.write_bytes(b"%d" % value)
            return str(path)

        state = pickle.dumps(Blob, 3) + pickle.dumps(None, 3)
        for value in range(2):
            transaction = begun(source)
            serial = current(source, ONE)
            source.storeBlob(ONE, serial, state, blob_file(value), "", transaction)
            tid = finished(source, transaction)
        storage.copyTransactionsFrom(source)
        agree(storage, base, [ONE])
        with open(storage.loadBlob(ONE, tid), "rb") as stream:
            assert stream.read() == b"1"
        transaction = begun(storage)
        storage.storeBlob(ONE, tid, state, blob_file(2), "", transaction)
        finished(storage, transaction)
        assert hits(storage, ONE, now(storage)) == 1
        agree(storage, base, [ONE])
        with open(storage.loadBlob(ONE, current(base, ONE)), "rb") as stream:
            assert stream.read() == b"2"
        storage.close()
        source.close()


class TestConflicts:
    def stale(self, storage, oid):
        """Put a revision into the cache that should never have been there."""
        storage._store.forget(u64(oid))
        storage._store.insert(u64(oid), 1, 0, record("stale"))
        assert storage._store.peek(u64(oid)) is not None

    def test_a_conflict_forgets(self, storage, base):
        commit(storage, (ONE, record(1)), (TWO, record(1)))
        self.stale(storage, ONE)
        transaction = begun(storage)
        with pytest.raises(ConflictError):
            storage.store(ONE, p64(1), record(2), "", transaction)
            storage.tpc_vote(transaction)
        storage.tpc_abort(transaction)
        assert storage._store.peek(1) is None
        assert storage._store.peek(2) is not None, "the others stay"
        agree(storage, base, [ONE, TWO])

    def test_a_conflict_at_the_vote_forgets(self, over_file, file_base):
        commit(over_file, (ONE, record(1)))
        self.stale(over_file, ONE)

        def vote(transaction):
            raise ConflictError(oid=ONE)

        file_base.tpc_vote = vote
        transaction = begun(over_file)
        with pytest.raises(ConflictError):
            over_file.tpc_vote(transaction)
        over_file.tpc_abort(transaction)
        assert over_file._store.peek(1) is None

    def test_a_conflict_without_an_oid(self, over_file, file_base):
        def vote(transaction):
            raise ConflictError

        commit(over_file, (ONE, record(1)))
        file_base.tpc_vote = vote
        transaction = begun(over_file)
        with pytest.raises(ConflictError):
            over_file.tpc_vote(transaction)
        over_file.tpc_abort(transaction)

    def test_a_read_conflict_forgets(self, over_file, file_base):
        commit(over_file, (ONE, record(1)))
        self.stale(over_file, ONE)
        transaction = begun(over_file)
        with pytest.raises(ReadConflictError):
            over_file.checkCurrentSerialInTransaction(ONE, p64(1), transaction)
            over_file.tpc_vote(transaction)
        over_file.tpc_abort(transaction)
        assert over_file._store.peek(1) is None

    def test_a_conflict_of_a_blob_forgets(self, tmp_path):
        base = FileStorage(str(tmp_path / "Data.fs"), blob_dir=str(tmp_path / "blobs"))
        storage = wrap(base)
        commit(storage, (ONE, record(1)))
        self.stale(storage, ONE)
        blob = tmp_path / "blob"
        blob.write_bytes(b"blob")
        transaction = begun(storage)
        with pytest.raises(ConflictError):
            storage.storeBlob(ONE, p64(1), record(2), str(blob), "", transaction)
            storage.tpc_vote(transaction)
        storage.tpc_abort(transaction)
        storage_holds = storage._store.peek(1)
        storage.close()
        assert storage_holds is None


class TestForgettingBases:
    """What the base forgets by our hand is dropped at once, from memory and from the file."""

    @pytest.fixture
    def reopened(self, tmp_path, cache_dir):
        """A storage whose rows are in memory and in the file."""
        path = str(tmp_path / "Data.fs")
        storage = wrap(FileStorage(path), cache_dir)
        commit(storage, (z64, record(0)), (ONE, record(1)))  # ONE is garbage
        commit(storage, (z64, record(1)))
        storage.close()
        storage = wrap(FileStorage(path), cache_dir)
        assert set(rows(storage)) == {0, 1}
        assert hits(storage, ONE, now(storage)) == 1
        yield storage
        storage.close()

    def test_pack(self, reopened):
        reopened.pack(time() + 1000, referencesf)
        assert rows(reopened) == {}
        assert reopened.cache_stats()["entries"] == 0
        with pytest.raises(POSKeyError):
            reopened.loadBefore(ONE, now(reopened))
        agree(reopened, reopened._base, [z64, ONE])

    def test_a_failing_pack_may_have_packed(self, reopened):
        def pack(*args):
            raise OSError("half way")

        reopened._base.pack = pack
        with pytest.raises(OSError):
            reopened.pack(time(), referencesf)
        assert rows(reopened) == {}
        assert reopened.cache_stats()["entries"] == 0

    def test_what_is_read_after_a_pack_is_saved(self, reopened, tmp_path, cache_dir):
        reopened.pack(time() + 1000, referencesf)
        expected = reopened.loadBefore(z64, now(reopened))
        reopened.close()
        again = wrap(FileStorage(str(tmp_path / "Data.fs")), cache_dir)
        assert set(rows(again)) == {0}
        assert hits(again, z64, now(again)) == 1
        assert again.loadBefore(z64, now(again)) == expected
        again.close()

    def test_deleted_objects(self, reopened, tmp_path, cache_dir):
        transaction = begun(reopened)
        reopened.deleteObject(ONE, current(reopened, ONE), transaction)
        finished(reopened, transaction)
        with pytest.raises(POSKeyError):
            reopened.loadBefore(ONE, now(reopened))
        agree(reopened, reopened._base, [z64, ONE])
        reopened.close()
        again = wrap(FileStorage(str(tmp_path / "Data.fs")), cache_dir)
        assert 1 not in rows(again)
        with pytest.raises(POSKeyError):
            again.loadBefore(ONE, now(again))
        agree(again, again._base, [z64, ONE])
        again.close()

    def test_deleted_and_killed(self, reopened, tmp_path, cache_dir):
        """The file still has the row; the next one to open it learns that it is gone."""
        transaction = begun(reopened)
        reopened.deleteObject(ONE, current(reopened, ONE), transaction)
        finished(reopened, transaction)
        reopened._base.close()  # and nothing is saved
        again = wrap(FileStorage(str(tmp_path / "Data.fs")), cache_dir)
        with pytest.raises(POSKeyError):
            again.loadBefore(ONE, now(again))
        assert hits(again, z64, now(again)) == 1
        again.close()


class TestPastTheWrapper:
    """Commits on the base itself, which no callback announces."""

    def test_are_never_read_wrong_and_heal_at_the_next_own_commit(self, storage, base):
        commit(storage, (ONE, record(1)), (TWO, record(1)))
        agree(storage, base, [ONE, TWO])
        commit(base, (ONE, record(2)))
        agree(storage, base, [ONE, TWO], ends=False)
        commit(base, (ONE, record(3)), (THREE, record(3)))
        agree(storage, base, [ONE, TWO, THREE], ends=False)
        commit(storage, (THREE, record(4)))
        agree(storage, base, [ONE, TWO, THREE])
        before = now(storage)
        for oid in (ONE, TWO, THREE):
            storage.loadBefore(oid, before)
            assert hits(storage, oid, before) == 1, "healed"

    def test_what_did_not_change_stays_cached(self, storage, base):
        if not IStorageIteration.providedBy(base):
            pytest.skip("the base cannot tell what changed")
        commit(storage, (ONE, record(1)), (TWO, record(1)))
        commit(base, (ONE, record(2)))
        commit(storage, (THREE, record(1)))
        assert hits(storage, ONE, now(storage)) == 0
        assert hits(storage, TWO, now(storage)) == 1

    def test_old_reads_stay_right(self, storage, base):
        tids = []
        for value in range(4):
            tids.append(commit(storage, (ONE, record(value))))
            tids.append(commit(base, (ONE, record(-value))))
            commit(storage, (TWO, record(value)))
        for tid in tids:
            for before in (tid, after(tid)):
                assert storage.loadBefore(ONE, before) == base.loadBefore(ONE, before)

    def test_are_not_saved_wrong(self, tmp_path, cache_dir):
        path = str(tmp_path / "Data.fs")
        storage = wrap(FileStorage(path), cache_dir)
        commit(storage, (ONE, record(1)), (TWO, record(1)))
        commit(storage._base, (ONE, record(2)))
        storage.close()
        again = wrap(FileStorage(path), cache_dir)
        agree(again, again._base, [ONE, TWO])
        assert again.loadBefore(ONE, now(again))[0] == record(2)
        assert hits(again, TWO, now(again)) == 1
        again.close()


class TestLargeTransactions:
    def test_keep_memory_bounded(self, storage, base):
        """I5: of an own transaction's states only a part is kept while it runs."""
        limit = storage.cache_stats()["limit_bytes"]
        transaction = begun(storage)
        state = record("x" * 10_000)
        for number in range(1, 1001):
            storage.store(p64(number), z64, state, "", transaction)
        (written,) = storage._writing.values()
        kept = sum(len(state) for state in written.states.values() if state is not None)
        assert kept <= limit / 8
        finished(storage, transaction)
        stats = storage.cache_stats()
        assert stats["used_bytes"] <= limit
        assert stats["entries"] * len(state) <= limit / 8
        assert storage._writing == {}
        agree(storage, base, [p64(1), p64(500), p64(1000)])

    def test_a_state_beyond_the_object_limit(self, storage, base):
        commit(storage, (ONE, record(1)))
        commit(storage, (ONE, record("x" * 1_000_000)))
        agree(storage, base, [ONE])
        assert storage.cache_stats()["state_bytes"] < 10_000

    def test_a_small_state_and_then_a_large_one(self, storage, base):
        """The first one is not what was committed."""
        transaction = begun(storage)
        storage.store(ONE, z64, record("small"), "", transaction)
        storage.store(ONE, z64, record("x" * 1_000_000), "", transaction)
        finished(storage, transaction)
        agree(storage, base, [ONE])


class TestReadOnly:
    def test_a_read_only_base_is_cached(self, tmp_path, cache_dir):
        path = str(tmp_path / "Data.fs")
        base = FileStorage(path)
        commit(base, (ONE, record(1)))
        base.close()
        for round in range(2):
            storage = wrap(FileStorage(path, read_only=True), cache_dir)
            assert storage.isReadOnly()
            first = hits(storage, ONE, now(storage))
            assert first == round, "the second one is warm"
            assert hits(storage, ONE, now(storage)) == 1
            with pytest.raises(Exception, match=r".*") as caught:
                commit(storage, (ONE, record(2)))
            assert type(caught.value).__name__ == "ReadOnlyError"
            agree(storage, storage._base, [ONE])
            storage.close()
