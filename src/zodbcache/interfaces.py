"""Every contract between the parts: ordering, threads, absence, errors.

Ids are int64 (:mod:`zodbcache.ids`) except where a method says "8 bytes".
The words *checkpoint*, *open*, *closed*, *named* are those of
``docs/glossary.rst``; the invariants I1 to I10 those of ``docs/design.rst``.
"""

from __future__ import annotations

from zope.interface import Attribute
from zope.interface import Interface


class IStore(Interface):
    """The memory tier: revisions bounded by bytes, under one checkpoint (I1, I5).

    Every method is atomic with respect to every other, whichever thread
    calls.  None of them logs, or calls the base storage; none blocks, but for
    the disk of a temporary database.
    """

    checkpoint = Attribute("The tid through which every open revision held is proven current.")
    limit_bytes = Attribute("The configured limit, bookkeeping included.")
    history = Attribute("Counts the calls of restart().")
    faults = Attribute("Counts how often all was lost to an error of a disk; misses follow.")

    def load_before(oid: bytes, before: bytes):
        """Return ``(state, tid, end)`` of the revision visible just before *before*.

        *oid*, *before*, *tid*: 8 bytes.  *end*: 8 bytes, or None for an open
        revision.  None is a miss.  An open revision is returned only when
        ``before - 1 <= checkpoint``; a closed one only when its exact end is
        known and not below *before*.  Counts a hit or a miss.
        """

    def insert(oid: int, tid: int, end: int, state: bytes):
        """Keep a revision, making room for it; return whether it was kept.

        *end*: 0 for an open revision, else its exact end.  Inserting a held
        revision again closes it if *end* says so and does nothing else.  An
        open revision replaces an older open one and yields to a newer one.
        A state longer than the object limit is not kept.  The caller has
        judged the revision by I3.
        """

    def load_at(oid: bytes, at: int):
        """Return ``(state, tid)`` of the revision visible at *at*, or None: a miss.

        An open revision is returned only when ``at <= checkpoint``; a closed
        one only when it is known to have lived through *at*.  Counts a hit or
        a miss.
        """

    def insert_own(states, tid: int):
        """Keep what a commit at *tid* wrote: a dict of 8-byte oid to state, or to None.

        What was open of these objects is known to have lived through the
        checkpoint, and stays for load_at() up to there.
        """

    def holds(oid: bytes, at: int):
        """Whether load_at() would find something.  Counts nothing."""

    def recall(oid: bytes, tid: bytes):
        """The state of just this revision, current or not, or None.  Counts nothing."""

    def promote(oid: int, tid: int, state: bytes, frequency: int):
        """Keep an open revision that a read found in the file, making room for it.

        As restore(), but may evict, and counts as a request.
        """

    def restore(oid: int, tid: int, state: bytes, frequency: int):
        """Keep an open revision that the file has; return False when there is no room.

        *frequency*: how often it was read, 0 to 15; decides its segment.
        Evicts nothing.  The caller has judged the revision by I1.
        """

    def advance(changes, checkpoint: int):
        """Close or drop what changed, then raise the checkpoint: the one atomic step.

        *changes*: a list of ``(oids, tid, exact)`` with a list of 8-byte
        oids each.  An open revision older than *tid* ends at *tid* if
        *exact*; otherwise nobody knows where it ended, and it is dropped.
        A *checkpoint* below the present one does not lower it.
        """

    def follow(names, checkpoint: int):
        """As advance(), for readers at a tid: *names* is a list of ``(oid, tid)`` ints.

        An open revision older than *tid* is known to have lived through the
        checkpoint as it was, and stays for load_at() up to there.
        """

    def forget(oid: int):
        """Drop every revision of *oid*."""

    def clear():
        """Drop everything; the checkpoint stays."""

    def restart(checkpoint: int):
        """Drop everything and set the checkpoint, be it lower."""

    def reserve(size_bytes: int):
        """Count *size_bytes* of somebody else's memory against the limit."""

    def peek(oid: int):
        """``(tid, frequency, state)`` of the open revision, or None.  Counts nothing."""

    unsaved_bytes = Attribute("Bytes of the open revisions' states that the file may lack.")

    unsaved_left = Attribute("Whether take_unsaved() is to be called again at once.")

    def take_unsaved():
        """The oids of what came since the last call and the file may lack.

        Returns their int64s, ascending, one after the other: bytes for pack().
        May be a part of them; then ``unsaved_left``.
        """

    def return_unsaved(oids: bytes, start: int):
        """The file has not got those from the *start*-th on, be they packed or not."""

    def search_unsaved():
        """The next calls of take_unsaved() look at everything."""

    def pack(oids: bytes, start: int, through: int, bytes_max: int):
        """Hand over unsaved revisions of *oids* with ``tid <= through``, as saved.

        From the *start*-th oid until their states have *bytes_max*.  Returns a
        Batch and the position after it.
        """

    def mark_unsaved():
        """The file has none of the revisions any more."""

    def restore_batch(batch, changed, known: int):
        """restore() what is current through *known* and not named since in the Deltas *changed*.

        False: there is no more room.
        """

    def heated(position: int, slots: int, faded: int):
        """What was asked for more than twice as often as the file has heard of.

        Looks at *slots* places from *position* on.  *faded*: how much what the
        file knew of frequencies has aged since.  Returns ``(oid, tid, gain)``
        of some, and the next position, 0 after the last.
        """

    def stats():
        """Counters and sizes: a dict of str to int."""

    def check():
        """Raise AssertionError unless every structural invariant holds."""


class IInvalidationLog(Interface):
    """What the process knows of changes, unbroken from ``start`` to ``end``.

    All methods take the log's lock for microseconds and touch memory only, so
    that they may be called under the base storage's locks (I10).
    """

    start = Attribute("Changes after this tid are all named here, up to ``end``.")
    end = Attribute("Equals the memory tier's checkpoint.")
    broken = Attribute("True between ``break_()`` and ``bridge()`` or ``restart()``.")
    epoch = Attribute("Changes when what a load under way brings must not be kept.")
    breaks = Attribute("How often it broke: tells whether an answer is still of use.")

    def name(tid: int, oids):
        """These 8-byte oids changed at some tid up to *tid* (I2).

        Returns the change; its ``exact`` may be set once the change is an own
        commit that the base storage has finished at just this tid.
        """

    def advance(tid: int):
        """All changes up to *tid* have been named: raise the end, unless broken (I3)."""

    def break_():
        """Changes may have been missed: the end stays until they are known."""

    def bridge(breaks: int, named, through: int):
        """What was missed up to *through* is among *named*.  False: it broke again since.

        *named*: a list of ``(oids, tid)`` with 8-byte oids.
        """

    def restart(breaks: int, through: int):
        """Forget everything and begin at *through*.  False: it broke again since."""

    def begin(through: int):
        """Begin at *through*, unless the log has begun."""

    def follow(names, since: int, through: int, breaks: int):
        """Every change after *since*, up to *through*, is among *names*: raise the end.

        *names*: a list of ``(oid, tid)`` ints.  *since*, *breaks*: the log's
        end and its count before the question was asked.  False, and nothing
        done, if the log broke or began anew since.
        """

    def extend_back(since: int, changes, through: int, exact=False):
        """Start earlier: *changes* are complete from *since* to *through*.

        *changes*: list of ``(oids, tid)``; *exact*: not only upper bounds.
        False if *through* does not reach the present start.
        """

    def can_hold(names: int):
        """Whether so many names fit half of the memory, for a moment."""

    def trim():
        """Forget names if they are more than may be remembered."""

    def forget_all():
        """Drop everything, and what loads under way will bring."""

    def shun(oids):
        """Keep these 8-byte oids no more."""

    def admit(oid: bytes, tid: int, end: int, state: bytes, known: int, epoch=None):
        """Keep what the base storage gave, if I3 allows it.

        *known*, *epoch*: the log's end and epoch before the base was asked.
        """

    def admit_seen(oid: bytes, tid: int, state: bytes, at: int, epoch: int):
        """Keep what a reader in a snapshot at *at* was given as current there."""

    def has_room(names: int):
        """Whether so many more names can be remembered."""

    def note(names):
        """These ``(oid, tid)`` are the newest revisions of a tid that was not asked for."""

    def agrees(names):
        """Whether current revisions up to the end, ``(oid, tid)``, are what is known of them."""

    def restore(batch, known: int, history=None):
        """Keep the file's rows that did not change since *known*; False: no use in more.

        *history*: the tier's when they were confirmed; none is kept in another.
        """

    def admit_own(tid: int, states):
        """Keep what an own commit wrote: a dict of oid to state, None for what is not kept."""

    def admit_rows(rows, checkpoint: int, at: int, epoch: int, end_wanted: bool):
        """Whether the first row is what a reader at *at* sees; those that are current are kept.

        *rows*: a list of ``(oid, tid, frequency, state)``.  *checkpoint*: the file's, of
        the same snapshot.  *epoch*: the log's before the row was read.
        *end_wanted*: only if no successor is known, either.
        """

    def drop(oids, tid: int):
        """These 8-byte oids changed at *tid*, and the base storage will not say so."""

    def trim_through(tid: int):
        """Forget the names up to *tid*: the file has been told of them."""

    def names_since(tid: int):
        """A list of ``(oid, tid)`` named after *tid*, or None if the log starts later."""

    def witnesses():
        """The newest revisions seen, cached or not: ``(oid, tid)``, newest first."""


class ISnapshots(Interface):
    """What the instances of one kind of native MVCC storage see.

    Asks the database in the instance's own snapshot; called by the thread
    that uses the instance.  May raise anything.
    """

    def attend(instance, recall):
        """Begin to attend to *instance*; return the storage in it: the others' argument.

        *recall*: ``f(oid, serial)``, a state for resolving a conflict, or None.
        """

    def point(storage, ask: bool):
        """The tid at which *storage* reads, or None if that is not known for certain.

        *ask*: do not believe what the storage says; ask its database.
        """

    def token(storage):
        """Something that is equal as long as the point did not move."""

    def session(storage):
        """What connects the storage to its database."""

    def changes(storage, since: int):
        """``(oid, tid)`` of what changed after *since* up to the point, or None."""

    def newest(storage):
        """``(oid, tid)`` of the newest revisions that the storage sees, a few dozen."""

    def current_tids(storage, oids):
        """``{oid: tid}`` of the revisions that the storage sees."""

    def load(storage, oid: int):
        """``(state, tid)`` as the database has it in the snapshot, or None to ask otherwise."""

    def fetch(storage, oids):
        """``(oid, state, tid)`` of many objects at once, or None."""

    def clear_own_cache(storage):
        """Empty what the storage caches by itself, for all instances."""


class ICatchUp(Interface):
    """How one kind of base storage tells what changed since a tid.

    May ask the base storage and block: never called under a lock of ours.
    """

    def identity():
        """A str that is the same whenever the same records are there to be read.

        None for a database that a later process could not know again.
        """

    undo_goes_back = Attribute("Undoing may make an earlier revision current again.")

    def conversation():
        """A context manager: questions inside may be asked over one connection."""

    def is_ready():
        """False while the storage is not connected."""

    def last_tid():
        """The newest tid; every later change will be pushed to who registered before."""

    def quick_changes(since: int):
        """As changes(), or None if that cannot be had at once."""

    def changes(since: int):
        """Every object changed after *since*: ``(through, [(oids, tid), ...])``.

        Complete up to *through*, which is not below last_tid() when asked.
        Raises CannotCatchUp.
        """

    def has_transaction(tid: int):
        """Whether the database has this very transaction.  False says nothing."""

    def shared_through(checkpoint: int, witnesses):
        """Through which tid the database shares the history of a tier; 0 if not known.

        May raise CannotCatchUp when it is known not to.
        """

    def current_tid(oid: int):
        """The tid of the object's current revision; None if it has none."""


class ICacheFile(Interface):
    """The shared file: at most one revision of an oid, under one checkpoint (I1, I6).

    Methods raise CacheFileError and nothing else.  One thread uses an
    instance at a time; several processes share the file.
    """

    path = Attribute("Where it is.")

    def snapshot():
        """A context manager giving an IFileSnapshot: one SQLite read transaction."""

    def advance(through: int, generation: int, names_since, rows, witnesses):
        """Delete what changed, insert *rows*, raise the checkpoint: the one atomic step.

        *through*: the tid through which the caller has proven *rows* and
        knows all changes.  *generation*: the one the caller's knowledge is
        of.  *names_since*: ``f(tid)`` as IInvalidationLog.names_since.
        *rows*: an iterable of Batches, or of ``(oid, tid, frequency, state)``, oids
        ascending, every ``tid <= through``; consumed under the file's lock.
        *witnesses*: list of ``(oid, tid)``.  Writes nothing when the file is ahead
        of *through* or of another generation.  Returns the outcome.
        """

    def warm(generation: int, gains):
        """Add to the frequencies of rows: a list of ``(oid, tid, gain)``.  Returns the age."""

    def trim(pause):
        """Bring the file below its limit, in small steps, until ``pause()`` between two is true."""

    def reset(generation: int):
        """Empty the file in place and start the next generation.

        Does nothing if the file's generation is not *generation* any more.
        """

    def close():
        """Give the file back.  May be called twice."""


class IFileSnapshot(Interface):
    """The file as of one moment: rows and checkpoint always fit each other."""

    checkpoint = Attribute("0 when the file is empty.")
    generation = Attribute("Counts the resets of the file.")
    age = Attribute("Grows with each trim; frequencies fade by it.")
    witnesses = Attribute("list of (oid, tid), newest tid first.")

    def batches(through: int, limit_bytes: int):
        """As rows(), in Batches."""

    def rows(through: int, limit_bytes: int):
        """Yield ``(oid, tid, frequency, state)`` with ``tid <= through``.

        The most valuable, where the states' bytes of all would pass *limit_bytes*.
        A row whose checksum does not fit is left out.
        """
