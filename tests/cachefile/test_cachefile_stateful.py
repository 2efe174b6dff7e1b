"""I6 and I1 of the file, whatever the interleaving, against a naive model.

The model is the whole history of a database.  Several workers share the file;
each knows the changes of its own log only.  A missing row is allowed, a row
that is not the revision current through the file's checkpoint never.
"""

from __future__ import annotations

import shutil
import tempfile

from cachefile_helpers import read
from cachefile_helpers import row
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine
from hypothesis.stateful import initialize
from hypothesis.stateful import invariant
from hypothesis.stateful import rule

from zodbcache.cachefile import CacheFile
from zodbcache.cachefile import Outcome

WORKERS = 3
OIDS = range(6)
LIMIT_BYTES = 250  # four rows of six

workers = st.integers(0, WORKERS - 1)
oids = st.sets(st.sampled_from(OIDS), max_size=len(OIDS))


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

    def proven(self, chosen):
        return [row(oid, self.database.current(oid, self.end), None, oid) for oid in sorted(chosen)]


class SharedFile(RuleBasedStateMachine):
    @initialize()
    def open(self):
        self.directory = tempfile.mkdtemp()
        self.database = Database()
        self.workers = [Worker(self.directory, self.database) for _ in range(WORKERS)]
        self.checkpoint = 0
        self.generation = 1
        self.proven = 0

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

    @rule(worker=workers, chosen=oids)
    def advance(self, worker, chosen):
        worker = self.workers[worker]
        self.write(worker, worker.end, worker.proven(chosen))

    @rule(worker=workers, changed=oids, chosen=oids)
    def commit_and_advance(self, worker, changed, chosen):
        self.commit(changed)
        self.poll(worker)
        self.advance(worker, chosen)

    @rule(worker=workers, chosen=oids)
    def queue(self, worker, chosen):
        worker = self.workers[worker]
        worker.queue = worker.end, worker.proven(chosen)

    @rule(worker=workers)
    def write_queued(self, worker):
        """Write what was proven some time ago, with the log of now."""
        worker = self.workers[worker]
        if worker.queue:
            self.write(worker, *worker.queue)

    @rule(worker=workers)
    def reset(self, worker):
        worker = self.workers[worker]
        worker.file.reset(worker.generation)
        if worker.generation == self.generation:
            self.generation += 1
            self.checkpoint = 0

    @rule(worker=workers)
    def restart(self, worker):
        """Close and open, as a new process would."""
        self.workers[worker].file.close()
        self.workers[worker] = Worker(self.directory, self.database)

    def write(self, worker, through, rows):
        result = worker.file.advance(
            through,
            worker.generation,
            worker.names_since,
            iter(rows),
            [(found[0], found[1]) for found in rows],
        )
        if worker.generation != self.generation:
            assert result.outcome is Outcome.STALE_GENERATION
            worker.restart()
        elif through < self.checkpoint:
            assert result.outcome is Outcome.BEHIND
        else:
            assert result.outcome in (Outcome.ADVANCED, Outcome.UNCHANGED)
            self.checkpoint = through

    @invariant()
    def every_row_is_current_through_the_checkpoint(self):
        checkpoint, found = read(self.workers[0].file)
        assert checkpoint == self.checkpoint
        for oid, (tid, state) in found.items():
            assert tid == self.database.current(oid, checkpoint), "I1"
            assert state == row(oid, tid)[3]

    @invariant()
    def totals_are_right(self):
        with self.workers[1].file.snapshot() as snapshot:
            found = list(snapshot.rows(self.database.last_tid, 10**6))
            assert snapshot.generation == self.generation
            assert snapshot.row_count == len(found)
            assert snapshot.state_bytes == sum(len(one[3]) for one in found)
            assert snapshot.size_bytes <= LIMIT_BYTES
            for oid, tid in snapshot.witnesses:
                assert tid == self.database.current(oid, snapshot.checkpoint)

    def teardown(self):
        for worker in self.workers:
            worker.file.close()
        shutil.rmtree(self.directory)


SharedFile.TestCase.settings = settings(max_examples=100, stateful_step_count=40, deadline=None)
TestSharedFile = SharedFile.TestCase
