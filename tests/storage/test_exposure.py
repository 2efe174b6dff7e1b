"""The wrapper is the storage it wraps: what that has and says, no more and no less."""

from __future__ import annotations

from time import time

import pytest
import transaction
from ZODB import DB
from ZODB.blob import BlobStorage
from ZODB.DemoStorage import DemoStorage
from ZODB.FileStorage import FileStorage
from ZODB.interfaces import IBlobStorage
from ZODB.interfaces import IMVCCAfterCompletionStorage
from ZODB.interfaces import IMVCCPrefetchStorage
from ZODB.interfaces import IMVCCStorage
from ZODB.interfaces import IStorage
from ZODB.interfaces import IStorageCurrentRecordIteration
from ZODB.interfaces import IStorageIteration
from ZODB.interfaces import IStorageRestoreable
from ZODB.interfaces import IStorageUndoable
from ZODB.interfaces import IStorageWrapper
from ZODB.MappingStorage import MappingStorage
from ZODB.POSException import POSKeyError
from ZODB.serialize import referencesf
from ZODB.utils import maxtid
from ZODB.utils import z64
from zope.interface import Interface
from zope.interface import alsoProvides
from zope.interface.verify import verifyObject

from .helpers import BASES
from .helpers import agree
from .helpers import begun
from .helpers import commit
from .helpers import finished
from .helpers import hits
from .helpers import now
from .helpers import record
from .helpers import wrap

OPTIONAL = (
    "cleanup",
    "copyTransactionsFrom",
    "deleteObject",
    "fshelper",
    "getExtensionMethods",
    "history",
    "isReadOnly",
    "iterator",
    "lastInvalidations",
    "loadBlob",
    "openCommittedBlobFile",
    "prefetch",
    "record_iternext",
    "restore",
    "restoreBlob",
    "server_sync",
    "storeBlob",
    "supportsUndo",
    "sync",
    "temporaryDirectory",
    "tpc_transaction",
    "undo",
    "undoInfo",
    "undoLog",
)

CHILDREN = ("new_instance", "before_instance", "undo_instance", "poll_invalidations")


class TestAttributes:
    @pytest.mark.parametrize("name", OPTIONAL)
    def test_has_what_the_base_has(self, base, storage, name):
        assert hasattr(storage, name) is hasattr(base, name)

    def test_the_bases_differ(self, tmp_path):
        """Else the test above would test little."""
        names = {}
        for kind, make in BASES.items():
            directory = tmp_path / kind.replace(" ", "")
            directory.mkdir()
            base = make(directory)
            names[kind] = {name for name in OPTIONAL if hasattr(base, name)}
            base.close()
        assert names["FileStorage"] > {"undo", "restore", "deleteObject", "copyTransactionsFrom"}
        assert not names["MappingStorage"] & {"undo", "restore", "deleteObject", "storeBlob"}
        assert names["BlobStorage"] > {"storeBlob", "restoreBlob"}
        assert all("prefetch" not in found for found in names.values())

    @pytest.mark.parametrize("name", CHILDREN)
    def test_hands_out_no_children_of_the_base(self, tmp_path, name):
        base = MappingStorage()
        setattr(base, name, lambda *args: base)
        storage = wrap(base)
        assert not hasattr(storage, name)
        storage.close()

    @pytest.mark.parametrize("name", OPTIONAL)
    def test_what_the_base_gets_later_is_there(self, name):
        base = MappingStorage()
        storage = wrap(base)
        setattr(base, name, lambda *args: "later")
        assert hasattr(storage, name)
        delattr(base, name)
        assert hasattr(storage, name) is hasattr(base, name)
        storage.close()

    def test_no_method_of_the_base_is_copied(self, base, storage):
        """Some storages put other methods in their own place when they are stale."""
        own = {"loadBefore"}  # never the base's: it asks the cache first
        for name in dir(base):
            if name.startswith("_") or name in own or not callable(getattr(base, name)):
                continue
            if name in vars(storage):
                pytest.fail(f"{name} was copied")

    @pytest.mark.parametrize(
        "name", ["load", "loadSerial", "lastTransaction", "getSize", "history"]
    )
    def test_a_method_swapped_on_the_base_is_the_one_that_is_called(self, base, storage, name):
        if not hasattr(base, name):
            pytest.skip("the base has none")
        setattr(base, name, lambda *args: ("swapped", *args))
        arguments = {"lastTransaction": (), "getSize": ()}.get(name, (b"1" * 8, b"2" * 8))
        assert getattr(storage, name)(*arguments)[:1] == ("swapped",)

    def test_a_swapped_loadbefore_is_the_one_that_is_asked(self, base, storage):
        base.loadBefore = lambda oid, tid: (b"swapped", b"\0" * 7 + b"\1", None)
        assert storage.loadBefore(b"1" * 8, b"2" * 8)[0] == b"swapped"

    def test_a_swapped_store_and_finish_are_the_ones_that_are_called(self, base, storage):
        called = []
        for name in ("store", "tpc_begin", "tpc_vote", "tpc_finish"):
            original = getattr(base, name)

            def swapped(*args, name=name, original=original):
                called.append(name)
                return original(*args)

            setattr(base, name, swapped)
        commit(storage, (b"\0" * 7 + b"\1", record(1)))
        assert called == ["tpc_begin", "store", "tpc_vote", "tpc_finish"]

    def test_missing_names_are_attribute_errors(self, storage):
        with pytest.raises(AttributeError, match="no_such_thing"):
            storage.no_such_thing()

    def test_names_itself_as_the_base_does(self, base, storage):
        assert storage.getName() == base.getName()
        assert storage.sortKey() == base.sortKey()
        assert storage.isReadOnly() == base.isReadOnly()
        assert len(storage) == len(base)
        assert type(base).__name__ in repr(storage)


class TestInterfaces:
    @pytest.mark.parametrize(
        "interface",
        [
            IStorage,
            IStorageIteration,
            IStorageRestoreable,
            IStorageUndoable,
            IStorageCurrentRecordIteration,
            IBlobStorage,
            IMVCCStorage,
            IMVCCPrefetchStorage,
            IMVCCAfterCompletionStorage,
        ],
    )
    def test_provides_what_the_base_provides(self, base, storage, interface):
        assert interface.providedBy(storage) is interface.providedBy(base)

    def test_does_what_it_provides(self, storage):
        if isinstance(storage._base, BlobStorage):
            pytest.skip("the base provides no IStorage, though it has it")
        assert verifyObject(IStorage, storage)

    def test_is_a_wrapper_whatever_the_base_is(self, storage):
        assert verifyObject(IStorageWrapper, storage)

    def test_provides_what_a_base_instance_alone_provides(self):
        class IOwn(Interface):
            pass

        base = MappingStorage()
        alsoProvides(base, IOwn)
        storage = wrap(base)
        assert IOwn.providedBy(storage)
        assert IStorageWrapper.providedBy(storage)
        storage.close()


class TestDatabase:
    def test_a_database_over_it_hears_of_what_others_commit(self, tmp_path):
        base = MappingStorage()
        pushed = {}
        base.registerDB = lambda wrapper: pushed.update(wrapper=wrapper)
        storage = wrap(base)
        heard = []

        class Listener:
            def invalidate(self, tid, oids, version=""):
                heard.append((tid, list(oids)))

            def invalidateCache(self):
                heard.append("everything")

            references = staticmethod(referencesf)

        storage.registerDB(Listener())
        feed = pushed["wrapper"]
        assert IStorageWrapper.providedBy(feed)
        feed.invalidate(b"tid45678", [b"oid45678"])
        feed.invalidateCache()
        assert heard == [(b"tid45678", [b"oid45678"]), "everything"]
        storage._caretaker.wait()
        storage.close()

    def test_registering_does_not_take_the_feed_away(self, base, cache_dir):
        """Another registerDB on the base would leave the log deaf."""
        registered = []
        if not hasattr(base, "registerDB"):
            pytest.skip("the base has none")
        base.registerDB = registered.append
        storage = wrap(base, cache_dir)
        assert len(registered) == 1
        storage.registerDB(object())
        storage.registerDB(object())
        assert len(registered) == 1
        storage.close()

    def test_a_database_works_over_it(self, storage):
        db = DB(storage)
        with db.transaction() as connection:
            connection.root()["key"] = "value"
        with db.transaction() as connection:
            assert connection.root()["key"] == "value"
        db.close()

    def test_undo_reaches_the_cache(self, tmp_path):
        """DB.undo() works through an adapter, which must not be the base's own."""
        db = DB(wrap(FileStorage(str(tmp_path / "Data.fs"))))
        for value in (1, 2):
            with db.transaction() as connection:
                connection.root()["key"] = value

        db.undo(db.undoInfo(0, 1)[0]["id"])
        transaction.commit()
        with db.transaction() as connection:
            assert connection.root()["key"] == 1
        db.close()


class TestReading:
    OID = b"\0" * 7 + b"\1"

    def test_a_second_read_is_a_hit(self, storage, base):
        commit(base, (self.OID, record(1)))
        commit(storage, (b"\0" * 7 + b"\2", record(1)))  # the log learns of both
        before = now(storage)
        assert hits(storage, self.OID, before) == 0
        assert hits(storage, self.OID, before) == 1
        agree(storage, base, [self.OID])

    def test_every_revision_is_the_bases(self, storage, base):
        for value in range(6):
            commit(storage, (self.OID, record(value)))
            agree(storage, base, [self.OID])
        assert storage.cache_stats()["hits"] > 0

    def test_what_was_never_there(self, storage):
        with pytest.raises(POSKeyError):
            storage.loadBefore(b"\7" * 8, maxtid)
        with pytest.raises(POSKeyError):
            storage.load(b"\7" * 8)

    def test_before_the_first_revision_there_is_none(self, storage):
        tid = commit(storage, (self.OID, record(1)))
        for _ in range(2):
            assert storage.loadBefore(self.OID, tid) is None

    def test_loadbefore_maxtid_reaches_the_base(self, storage, base):
        """It asks for the newest revision there is, which nobody else knows."""
        commit(storage, (self.OID, record(1)))
        asked = []
        original = base.loadBefore

        def counted(oid, tid):
            asked.append(tid)
            return original(oid, tid)

        base.loadBefore = counted
        for _ in range(3):
            storage.loadBefore(self.OID, maxtid)
        assert asked == [maxtid] * 3

    def test_load_and_loadserial_reach_the_base(self, storage, base):
        tid = commit(storage, (self.OID, record(1)))
        storage.loadBefore(self.OID, now(storage))
        base.loadSerial = lambda oid, serial: "serial"
        base.load = lambda oid, version="": "newest"
        assert storage.loadSerial(self.OID, tid) == "serial"
        assert storage.load(self.OID) == "newest"

    def test_ids_that_are_none_are_the_bases_business(self, storage, base):
        for oid, tid in ((b"short", maxtid), (self.OID, b""), (None, maxtid), (self.OID, None)):
            outcomes = []
            for asked in (base, storage):
                try:
                    outcomes.append(asked.loadBefore(oid, tid))
                except Exception as error:
                    outcomes.append(type(error))
            assert outcomes[0] == outcomes[1]

    def test_loadserial_after_a_pack(self, tmp_path):
        storage = wrap(FileStorage(str(tmp_path / "Data.fs")))
        commit(storage, (z64, record(0)))
        first = commit(storage, (z64, record(1)))
        second = commit(storage, (z64, record(2)))
        storage.loadBefore(z64, second)
        assert storage.loadSerial(z64, first) == record(1)
        pack_all(storage)
        with pytest.raises(POSKeyError):
            storage.loadSerial(z64, first)
        assert storage.loadBefore(z64, second) is None
        storage.close()

    def test_iteration_is_the_bases(self, storage):
        tids = [commit(storage, (self.OID, record(value))) for value in range(3)]
        assert [transaction.tid for transaction in storage.iterator()] == tids
        if hasattr(storage, "record_iternext"):
            oid, tid, state, following = storage.record_iternext()
            assert (oid, tid, state, following) == (self.OID, tids[-1], record(2), None)

    def test_a_wrapper_over_a_wrapper(self, tmp_path):
        inner = wrap(FileStorage(str(tmp_path / "Data.fs")))
        outer = wrap(inner)
        for value in range(3):
            commit(outer, (self.OID, record(value)))
        agree(outer, inner._base, [self.OID])
        transaction = begun(outer)
        outer.undo(outer.undoInfo(0, 1)[0]["id"], transaction)
        finished(outer, transaction)
        agree(outer, inner._base, [self.OID])
        assert inner.loadBefore(self.OID, now(inner))[0] == record(1)
        outer.close()

    def test_a_pushed_demostorage_lies_over_the_base(self):
        storage = wrap(DemoStorage())
        commit(storage, (self.OID, record(1)))
        pushed = storage.push()
        commit(pushed, (self.OID, record(2)))
        assert storage.loadBefore(self.OID, maxtid)[0] == record(1)
        assert pushed.pop().loadBefore(self.OID, maxtid)[0] == record(1)
        storage.close()


def pack_all(storage):
    """Pack everything but the newest revisions of what the root reaches."""

    storage.pack(time() + 1000, referencesf)
