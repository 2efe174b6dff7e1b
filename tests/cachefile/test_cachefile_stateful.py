"""I6 and I1 of the file, whatever the interleaving, against a naive model.

The model is the whole history of a database.  Several workers share the file;
each knows the changes of its own log only.  A missing row is allowed, a row
that is not the revision current through the file's checkpoint never.
"""

from __future__ import annotations

import shutil
import tempfile
from contextlib import contextmanager

import pytest
from cachefile_helpers import ALL_BYTES
from cachefile_helpers import check_totals
from cachefile_helpers import make_version_1
from cachefile_helpers import query
from cachefile_helpers import row
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine
from hypothesis.stateful import initialize
from hypothesis.stateful import invariant
from hypothesis.stateful import rule

from zodbcache._core._store import Batch
from zodbcache.cachefile import CacheFile
from zodbcache.cachefile import Outcome
from zodbcache.cachefile import trim as trimming

WORKERS = 3
MAX_FREQUENCY = 15
OIDS = range(8)
LIMIT_BYTES = 400  # five or six rows of eight

workers = st.integers(0, WORKERS - 1)
oids = st.sets(st.sampled_from(OIDS), max_size=len(OIDS))
frequencies = st.integers(0, MAX_FREQUENCY)


def state_of(oid, tid):
    """Of another size for each object."""
    return b"%d@%d " % (oid, tid) * (1 + 2 * oid)


class Database:
    """All revisions, as ``(tid, oid)`` in the order of their commits."""

    def __init__(self):
        self.last_tid = 1
        self.changes = [(1, oid) for oid in OIDS]

    def commit(self, changed):
        self.last_tid += 1
        self.changes += [(self.last_tid, oid) for oid in sorted(changed)]

    def current(self, oid, through):
        return max(tid for tid, changed in self.changes if changed == oid and tid <= through)


class Worker:
    """A process: its log's start and end, the generation it knows, and what it queued."""

    def __init__(self, directory, database):
        self.database = database
        self.file = CacheFile.open(directory, identity="model", limit_bytes=LIMIT_BYTES)
        self.restart()

    def restart(self):
        """Catch up: the log starts at the file's checkpoint, as at every open."""
        with self.file.snapshot() as snapshot:
            self.start = snapshot.checkpoint
            self.generation = snapshot.generation
        self.end = self.database.last_tid
        self.queue = None

    def names_since(self, since):
        """Named tids may be upper bounds (I2): here, sometimes the log's end."""
        if since < self.start:
            return None
        return [
            (oid, tid if oid % 2 else self.end)
            for tid, oid in self.database.changes
            if since < tid <= self.end
        ]

    def proven(self, chosen, frequency):
        """What is current through the log's end, as memory has it."""
        current = [(oid, self.database.current(oid, self.end)) for oid in sorted(chosen)]
        return [row(oid, tid, state_of(oid, tid), (frequency + oid) % 16) for oid, tid in current]


class Died(Exception):
    """In the middle of a transaction."""


class SharedFile(RuleBasedStateMachine):
    @initialize()
    def open(self):
        self.directory = tempfile.mkdtemp()
        self.database = Database()
        self.workers = [Worker(self.directory, self.database) for _ in range(WORKERS)]
        self.checkpoint = 0
        self.generation = 1
        self.age = 0
        self.patches = pytest.MonkeyPatch()
        self.patches.setattr(trimming, "STEP_ROWS", 1)
        #: oid: tid and frequency, with the age that it had then, of what may be in the file.
        self.model = {}

    # What the workers know

    @rule(changed=oids)
    def commit(self, changed):
        self.database.commit(changed)

    @rule(worker=workers)
    def poll(self, worker):
        self.workers[worker].end = self.database.last_tid

    @rule(worker=workers)
    def poll_not_all(self, worker):
        end = self.workers[worker].end
        self.workers[worker].end = min(end + 1, self.database.last_tid)

    @rule(worker=workers)
    def forget_old_changes(self, worker):
        """The log outgrew its limit, or broke and began anew."""
        self.workers[worker].start = self.workers[worker].end

    # Saving

    @rule(worker=workers, chosen=oids, frequency=frequencies)
    def advance(self, worker, chosen, frequency):
        worker = self.workers[worker]
        self.write(worker, worker.end, worker.proven(chosen, frequency))

    @rule(worker=workers, changed=oids, chosen=oids, frequency=frequencies)
    def commit_and_advance(self, worker, changed, chosen, frequency):
        self.commit(changed)
        self.poll(worker)
        self.advance(worker, chosen, frequency)

    @rule(worker=workers, chosen=oids, frequency=frequencies)
    def queue(self, worker, chosen, frequency):
        worker = self.workers[worker]
        worker.queue = worker.end, worker.proven(chosen, frequency)

    @rule(worker=workers)
    def write_queued(self, worker):
        """Write what was proven some time ago, with the log of now."""
        worker = self.workers[worker]
        if worker.queue:
            self.write(worker, *worker.queue)

    @rule(worker=workers, chosen=oids, during=st.sampled_from(["names", "rows"]))
    def die_while_advancing(self, worker, chosen, during):
        """Nothing of it is in the file: neither what was deleted, nor what was inserted."""
        worker = self.workers[worker]

        def names_since(since):
            if during == "names":
                raise Died
            return worker.names_since(since)

        def rows():
            yield from worker.proven(chosen, 1)
            raise Died

        try:
            result = worker.file.advance(worker.end, worker.generation, names_since, rows(), [])
            assert result.outcome in (Outcome.STALE_GENERATION, Outcome.BEHIND)
        except Died:
            pass

    def write(self, worker, through, rows):
        if self.generation != worker.generation:
            expected = [Outcome.STALE_GENERATION]
        elif through < self.checkpoint:
            expected = [Outcome.BEHIND]
        else:
            expected = [Outcome.ADVANCED, Outcome.UNCHANGED]
            self.expect(worker.names_since(self.checkpoint), rows)
            self.checkpoint = through
        result = worker.file.advance(
            through,
            worker.generation,
            worker.names_since,
            [Batch(rows[:3]), Batch(rows[3:])] if len(rows) % 2 else iter(rows),
            [(found[0], found[1]) for found in rows],
        )
        assert result.outcome in expected
        if result.outcome is Outcome.STALE_GENERATION:
            worker.restart()

    def expect(self, named, rows):
        """The model's own advance: delete what is named, keep what is newer, add up what is not."""
        if named is None:
            self.model = {}
        for oid, tid in named or ():
            if oid in self.model and self.model[oid][0] < tid:
                del self.model[oid]
        for oid, tid, frequency, _ in rows:
            if oid not in self.model or self.model[oid][0] < tid:
                self.model[oid] = tid, frequency + self.age
            elif self.model[oid][0] == tid:
                self.heat(oid, frequency)

    def heat(self, oid, gain):
        tid, frequency = self.model[oid]
        self.model[oid] = tid, self.age + min(self.clamp(frequency) + gain, MAX_FREQUENCY)

    def clamp(self, frequency):
        return max(0, min(frequency - self.age, MAX_FREQUENCY))

    # What else happens to the file

    @rule(worker=workers, chosen=oids, gain=frequencies, is_current=st.booleans())
    def warm(self, worker, chosen, gain, is_current):
        """Some revisions are not in the file, or not any more."""
        worker = self.workers[worker]
        end = self.database.last_tid if is_current else worker.end
        gains = [(oid, self.database.current(oid, end), gain) for oid in sorted(chosen)]
        assert worker.file.warm(worker.generation, gains) == self.age
        if worker.generation == self.generation:
            for oid, tid, _ in gains:
                if oid in self.model and self.model[oid][0] == tid:
                    self.heat(oid, gain)

    @rule(worker=workers, other=workers, data=st.data())
    def trim(self, worker, other, data):
        """Between two of its steps anything may happen."""
        worker = self.workers[worker]
        planned = self.generation, self.age
        before = self.sizes()
        is_full = sum(before.values()) > LIMIT_BYTES
        meanwhile = data.draw(st.lists(st.sampled_from(["advance", "warm", "reset", "trim"])))

        def pause():
            self.follow()
            if meanwhile:
                self.between(meanwhile.pop(), other, worker, data)

        trimmed = worker.file.trim(pause)
        assert is_full or trimmed == 0
        self.follow()
        if is_full and planned == (self.generation, self.age):
            self.age += 1

    def between(self, what, other, trimmer, data):
        if what == "advance":
            self.commit_and_advance(other, data.draw(oids), data.draw(oids), 3)
        elif what == "warm":
            self.warm(other, data.draw(oids), 2, True)
        elif what == "reset":
            self.reset(other)
        elif self.workers[other] is not trimmer:
            self.trim_at_once(self.workers[other])

    @rule(worker=workers)
    def trim_alone(self, worker):
        self.trim_at_once(self.workers[worker])
        assert sum(self.sizes().values()) <= LIMIT_BYTES

    def trim_at_once(self, worker):
        is_full = sum(self.sizes().values()) > LIMIT_BYTES
        trimmed = worker.file.trim()
        assert bool(trimmed) == is_full
        self.age += is_full
        self.follow()

    def sizes(self):
        sql = f"SELECT oid, octet_length(state) + {trimming.ROW_OVERHEAD_BYTES} FROM record"
        return dict(query(self.workers[0].file.path, sql))

    def follow(self):
        """What a trim deletes is its own choice."""
        there = self.sizes()
        self.model = {oid: known for oid, known in self.model.items() if oid in there}

    @rule(worker=workers)
    def reset(self, worker):
        worker = self.workers[worker]
        worker.file.reset(worker.generation)
        if worker.generation == self.generation:
            self.generation += 1
            self.checkpoint = self.age = 0
            self.model = {}

    @rule(worker=workers)
    def restart(self, worker):
        """Close and open, as a new process would."""
        self.workers[worker].file.close()
        self.workers[worker] = Worker(self.directory, self.database)

    @rule()
    def migrate(self):
        """All stop, and the file becomes what the first version would have left."""
        stored = "SELECT oid, frequency FROM record"
        with self.nobody() as path:
            found = dict(query(path, stored))
            self.model = {oid: (known[0], found[oid]) for oid, known in self.model.items()}
            make_version_1(path)

    @contextmanager
    def nobody(self):
        for worker in self.workers:
            worker.file.close()
        yield self.workers[0].file.path
        self.workers = [Worker(self.directory, self.database) for _ in range(WORKERS)]

    # What must hold

    @invariant()
    def every_row_is_current_through_the_checkpoint(self):
        with self.workers[0].file.snapshot() as snapshot:
            assert snapshot.checkpoint == self.checkpoint
            assert snapshot.generation == self.generation
            found = list(snapshot.rows(self.database.last_tid, ALL_BYTES))
            assert snapshot.skipped == 0
            for oid, tid in snapshot.witnesses:
                assert tid == self.database.current(oid, snapshot.checkpoint)
        assert len({one[0] for one in found}) == len(found), "I6"
        for oid, tid, _, state in found:
            assert tid == self.database.current(oid, self.checkpoint), "I1"
            assert state == state_of(oid, tid)
        assert {one[0]: one[1] for one in found} == {
            oid: tid for oid, (tid, _) in self.model.items()
        }

    @invariant()
    def frequencies_add_and_age(self):
        with self.workers[1].file.snapshot() as snapshot:
            assert snapshot.age == self.age
            found = {one[0]: one[2] for one in snapshot.rows(self.database.last_tid, ALL_BYTES)}
        assert all(0 <= frequency <= MAX_FREQUENCY for frequency in found.values())
        assert found == {oid: self.clamp(known[1]) for oid, known in self.model.items()}

    @invariant()
    def totals_are_right(self):
        check_totals(self.workers[2].file.path)

    def teardown(self):
        self.patches.undo()
        for worker in self.workers:
            worker.file.close()
        shutil.rmtree(self.directory)


SharedFile.TestCase.settings = settings(max_examples=100, stateful_step_count=40, deadline=None)
TestSharedFile = SharedFile.TestCase
