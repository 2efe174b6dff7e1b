"""Several processes over one server and one cache file, against the naive model.

An operation is a tuple of its name and arguments, so that hypothesis and a
plain random driver can both make them.  After each one: every structural
invariant holds (``store.check()``), and whatever a process has in memory or
wrote to the file is what the naive model says.  A miss is allowed, a wrong
revision never.

Operations may carry others that happen *meanwhile*: between a question to the
base storage and its answer, inside a callback, while the file is written.
"""

from __future__ import annotations

import shutil
import tempfile
from collections.abc import Callable
from collections.abc import Iterable
from collections.abc import Iterator
from collections.abc import Sequence
from contextlib import contextmanager
from contextlib import nullcontext
from dataclasses import dataclass
from itertools import cycle
from itertools import islice
from types import SimpleNamespace
from typing import Any
from unittest import mock

from ZEO.Exceptions import ClientDisconnected
from ZODB.POSException import POSKeyError

import zodbcache.cache
import zodbcache.storage
from zodbcache import saving
from zodbcache.cachefile import CacheFile
from zodbcache.caretaker import Caretaker
from zodbcache.feeds import catchup
from zodbcache.ids import to_bytes
from zodbcache.ids import to_int
from zodbcache.persistence import Persistence

from .client import Client
from .client import ClientStorage
from .client import Server
from .client import expand
from .client import nothing
from .client import state_of

Operation = tuple[Any, ...]
Questions = Iterable[Callable[[], None]]

OIDS = (0, 1, 2, 3, 2**62, -1)
SIZES = (10, 900, 4_000, 12_000, 30_000, 40_000)
DELTAS_MAX = (1, 3, 1000)
LIMIT_BYTES = 256 * 1024
FIRST_GARBAGE_OID = 1000

SAVE_BYTES, PACK_BYTES = 30_000, 10_000
LOCKED = ("packing", "packed")
MOMENTS = ("begun", *LOCKED, "between")
"""Of a save: its transactions, in which the file is locked from some moment on."""
WAITING = ("mend", "commit")
"""Who may wait for the file, and so cannot go on in the middle of its transaction."""


@dataclass(frozen=True)
class Options:
    """What the cache asks of CacheOptions, with a smaller memory than users can choose."""

    cache_local_dir: str
    cache_delta_size_limit: int
    cache_backend: str = "memory"
    cache_prefix: str = ""
    cache_write_seconds: float = 0
    limit_bytes: int = LIMIT_BYTES
    object_max_bytes: int = LIMIT_BYTES // 8
    file_limit_bytes: int = 2 * LIMIT_BYTES


class SteppedCaretaker(Caretaker):
    """Has no thread: what it is woken for is done by an operation of its own."""

    woken = False

    def wake(self) -> None:
        self.woken = True


class _Listener:
    """Stands for the ZODB database: hears of changes before the log's end passes them."""

    def __init__(self) -> None:
        self.on_invalidate: Callable[[], None] = nothing

    def invalidate(self, tid: bytes, oids: Iterable[bytes]) -> None:
        on_invalidate, self.on_invalidate = self.on_invalidate, nothing
        on_invalidate()

    def invalidateCache(self) -> None:
        pass


class Process:
    """A worker: its connection to the server, and the cached storage over it."""

    def __init__(
        self,
        server: Server,
        directory: str,
        deltas_max: int,
        on_questions: Questions,
        backend: str = "memory",
    ) -> None:
        self.client: Client = ClientStorage(server)
        self.client.on_questions.extend(on_questions)
        options = Options(
            cache_local_dir=directory, cache_delta_size_limit=deltas_max, cache_backend=backend
        )
        with mock.patch.object(zodbcache.cache, "Caretaker", SteppedCaretaker):
            self.storage = zodbcache.storage.CachedStorage(self.client, options)
        self.listener = _Listener()
        self.storage.registerDB(self.listener)
        self.forgotten: set[tuple[int, int]] = set()  # what an own pack took away
        self.is_mending = False

    @property
    def store(self) -> Any:
        return self.storage._store

    @property
    def log(self) -> Any:
        return self.storage._log

    @property
    def caretaker(self) -> Any:
        return self.storage._caretaker

    def crash(self) -> None:
        """Nothing is saved; the operating system closes what is open."""
        self.storage._persistence.close()
        self.client.close()


def _brief(found: Any) -> Any:
    if found is None:
        return None
    state, tid, end = found
    return state.rpartition(b"|")[0], to_int(tid), end and to_int(end)


@contextmanager
def _stepping(
    process: Process, moment: str, step: Callable[[], None]
) -> Iterator[Callable[[], bool]]:
    """Let *step* happen at this moment of each transaction; gives the *pause* of a save."""
    file, store = process.storage._persistence._file, process.store
    act = file.advance if moment == "begun" else store.pack

    def stepped(*arguments: Any) -> Any:
        if moment != "packed":
            step()
        found = act(*arguments)
        if moment == "packed":
            step()
        return found

    def pause() -> bool:
        if moment == "between":
            step()
        return False

    if moment == "begun":
        patch = mock.patch.object(file, "advance", stepped)
    elif moment in LOCKED:
        patch = mock.patch.object(store, "pack", stepped)
    else:
        patch = nullcontext()
    with (
        patch,
        mock.patch.dict(Persistence.save.__kwdefaults__, bytes_at_once=SAVE_BYTES),
        mock.patch.object(saving, "PACK_BYTES", PACK_BYTES),
    ):
        yield pause


class World:
    """*steps*, *reads*, *hits*: counted.  Raises AssertionError on anything wrong.

    *backends*: of the cache; each process that is opened takes the next one.
    """

    def __init__(
        self,
        processes: int = 2,
        *,
        queue_length: int = 5,
        backends: Sequence[str] = ("memory",),
    ) -> None:
        self._backends = cycle(backends)
        self.directory = tempfile.mkdtemp()
        self.server = Server(queue_length=queue_length)
        self.copies: list[Server] = []
        self.processes: list[Process | None] = [None] * processes
        self.steps = self.reads = self.hits = self.restored = 0
        self._next_garbage_oid = FIRST_GARBAGE_OID
        self._stamp = 0
        self._rotation = 0
        self._wrong: AssertionError | None = None
        for number in range(processes):
            self.do(("open", number, 1000, []))

    def close_all(self) -> None:
        for number in range(len(self.processes)):
            self._close(number)

    def end(self) -> None:
        self._crash_all()
        shutil.rmtree(self.directory)

    def do(self, operation: Operation) -> None:
        self.run([operation])
        if self._wrong is not None:
            raise self._wrong
        self.check()

    def run(self, operations: Iterable[Operation]) -> None:
        for name, *arguments in operations:
            self.steps += 1
            try:
                getattr(self, f"_{name}")(*arguments)
            except AssertionError as error:
                # The caretaker goes on whatever it meets, and this may be in the middle of it.
                self._wrong = self._wrong or error
                raise

    def _process(self, number: int) -> Process | None:
        return self.processes[number]

    def _later(self, operations: Iterable[Operation]) -> Callable[[], None]:
        return lambda: self.run(operations)

    def _one_by_one(self, operations: Iterable[Operation]) -> Questions:
        return [self._later([operation]) for operation in operations]

    def _states(self, written: Iterable[tuple[int, int]]) -> dict[int, bytes | None]:
        """New records for ``(oid, size)``; a size of 0 deletes."""
        self._stamp += 1
        return {
            oid: state_of(f"{oid}/{self._stamp}", size) if size else None for oid, size in written
        }

    def _before(self, process: Process, age: int) -> int:
        """A tid to read before: 0 is now, others are about a transaction, from their end."""
        transactions = self.server.everything.transactions
        if age == 0 or not transactions:
            return process.client.last_tid + 1
        age -= 1
        return transactions[-1 - age // 3 % len(transactions)].tid + age % 3

    # Processes

    def _open(self, number: int, deltas_max: int, meanwhile: list[Operation]) -> None:
        if self.processes[number] is None:
            self.processes[number] = Process(
                self.server,
                self.directory,
                deltas_max,
                self._one_by_one(meanwhile),
                next(self._backends),
            )

    def _close(self, number: int) -> None:
        process = self.processes[number]
        if process is not None:
            self.processes[number] = None
            self.restored += process.storage.cache_stats()["restored"]
            process.storage.close()
            self._check_file(process)

    def _crash(self, number: int) -> None:
        process = self.processes[number]
        if process is not None:
            self.processes[number] = None
            self.restored += process.storage.cache_stats()["restored"]
            process.crash()

    def _save(self, number: int, moment: str, meanwhile: list[Operation]) -> None:
        """Write the file while other threads go on: one of *meanwhile* a time."""
        process = self.processes[number]
        if process is not None and process.storage._persistence._file is not None:
            interludes = iter(
                one for one in meanwhile if moment not in LOCKED or one[0] not in WAITING
            )
            with _stepping(process, moment, lambda: self.run(islice(interludes, 1))) as pause:
                process.storage._persistence.save(pause)
            self._check_file(process)

    # Commits

    def _commit(
        self,
        number: int,
        written: list[tuple[int, int]],
        way: str,
        gap: int,
        calls_back_first: bool,
        in_callback: list[Operation],
        meanwhile: list[Operation],
    ) -> None:
        """*way*: ``store``, or what else the base storage makes of it."""
        process = self.processes[number]
        if process is None or not process.client.can_begin():
            return
        storage = process.storage
        states = self._states(written)
        transaction = SimpleNamespace(
            gap=gap,
            calls_back_first=calls_back_first,
            resolved=self._states(written) if way == "resolve" else {},
            undone=states if way in ("undo", "restore") else {},
            meanwhile=self._later(meanwhile),
        )
        storage.tpc_begin(transaction)
        for oid, state in states.items():
            if way in ("store", "resolve", "abort"):
                data = expand(state or state_of("stored", 1))
                storage.store(to_bytes(oid), b"", data, "", transaction)
            if state is None and way == "store":
                storage.deleteObject(to_bytes(oid), b"", transaction)
            if way == "restore":
                data = expand(state_of("given", 100))
                storage.restore(to_bytes(oid), b"", data, "", None, transaction)
        if way == "undo":
            storage.undo(b"", transaction)
        storage.tpc_vote(transaction)
        if way == "abort":
            storage.tpc_abort(transaction)
            return
        storage.tpc_finish(transaction, lambda tid: self.run(in_callback))

    def _foreign(self, written: list[tuple[int, int]], gap: int) -> None:
        """Somebody else commits; the processes hear of it when it is delivered."""
        self.server.commit(self.server.new_tid(gap), self._states(written))

    def _announced(
        self,
        number: int,
        written: list[tuple[int, int]],
        gap: int,
        before: list[Operation],
        after: list[Operation],
    ) -> None:
        """A commit becomes visible while the process's callback for it runs."""
        process = self.processes[number]
        if process is None or not process.client.is_connected():
            return
        client = process.client
        client.deliver()
        tid = self.server.new_tid(gap)
        states = self._states(written)

        def become_visible() -> None:
            self.run(before)
            self.server.commit(tid, states, sender=client)
            self.run(after)

        process.listener.on_invalidate = become_visible
        client._push(tid, [to_bytes(oid) for oid in states])

    def _deliver(self, number: int, count: int) -> None:
        process = self.processes[number]
        if process is not None:
            process.client.deliver(count)

    # The connection

    def _disconnect(self, number: int) -> None:
        process = self.processes[number]
        if process is not None:
            process.client.disconnect()

    def _step(self, number: int, quick_verification: bool) -> None:
        process = self.processes[number]
        if process is not None:
            process.client.step(quick_verification=quick_verification)

    def _reconnect(
        self, number: int, missed: list[list[tuple[int, int]]], quick_verification: bool
    ) -> None:
        """All at once: what was committed meanwhile was announced to nobody."""
        process = self.processes[number]
        if process is None:
            return
        process.client.disconnect()
        for written in missed:
            self._foreign(written, 1)
        while not process.client.is_connected():
            process.client.step(quick_verification=quick_verification)

    def _mend(self, number: int, is_patient: bool, meanwhile: list[Operation]) -> None:
        """The caretaker's work, once the connection can be used.

        Not *is_patient*: as if iterating took too long.
        """
        process = self.processes[number]
        if process is None or process.is_mending or not process.client.is_connected():
            return
        if process.storage._persistence._using.locked():
            return  # in the middle of a save, which the caretaker might wait for
        process.client.on_questions.extend(self._one_by_one(meanwhile))
        process.is_mending = True
        budget_seconds = catchup.BUDGET_SECONDS if is_patient else -1
        try:
            with mock.patch.object(catchup, "BUDGET_SECONDS", budget_seconds):
                while process.caretaker.woken and process.client.is_connected():
                    process.caretaker.woken = False
                    process.caretaker.attend(quickly=False)
        finally:
            process.is_mending = False
            process.client.on_questions.clear()

    # Reading

    def _load(
        self,
        number: int,
        oid: int,
        age: int,
        stale: bool,
        before: list[Operation],
        after: list[Operation],
    ) -> None:
        """Read at some past point; *stale*: of a miss, ZEO's own cache answers."""
        process = self.processes[number]
        if process is None:
            return
        client = process.client
        read_before = self._before(process, age)
        loads = client.loads
        client.answers_stale = stale
        client.before_answer, client.after_answer = self._later(before), self._later(after)
        self.reads += 1
        try:
            found = process.storage.loadBefore(to_bytes(oid), to_bytes(read_before))
        except (POSKeyError, ClientDisconnected):
            return
        finally:
            client.answers_stale = False
            client.before_answer = client.after_answer = nothing  # of a hit, nobody was asked
        if client.loads == loads:
            self.hits += 1
            self._check_hit(process, oid, read_before, found)

    # What an administrator does

    def _pack(self, number: int) -> None:
        """Through the process's own storage."""
        process = self.processes[number]
        if process is not None and process.client.is_connected():
            process.storage.pack()
            process.forgotten = {
                (oid, revision.tid)
                for oid, found in self.server.everything.revisions.items()
                for revision in found
                if not self.server.database.has(oid, revision.tid)
            }

    def _pack_elsewhere(self) -> None:
        self.server.pack()

    def _make_garbage(self, gap: int) -> None:
        self._foreign([(self._next_garbage_oid, 10)], gap)
        self._next_garbage_oid += 1

    def _collect_elsewhere(self) -> None:
        self.server.database.collect(range(FIRST_GARBAGE_OID, self._next_garbage_oid))

    def _crash_all(self) -> None:
        for number in range(len(self.processes)):
            self._crash(number)

    def _restart_server(self) -> None:
        self._crash_all()
        self.server.restart()

    def _copy_database(self) -> None:
        self.copies = [*self.copies[-1:], self.server.backup()]

    def _swap_database(self, which: int, committed: list[list[tuple[int, int]]]) -> None:
        """A copy comes back, and may come back again: their histories differ from then on."""
        if self.copies:
            self.close_all()
            self.server.swap(self.copies[which % len(self.copies)])
            for written in committed:
                self._foreign(written, 1)

    # What must hold

    def check(self) -> None:
        self._rotation += 1
        for process in self.processes:
            if process is not None:
                process.store.check()
                assert process.store.checkpoint == process.log.end
                self._check_memory(process)

    def _check_memory(self, process: Process) -> None:
        """I1: each open revision is current through the checkpoint; what is visible is right."""
        checkpoint = process.log.end
        for oid in OIDS:
            found = process.store.peek(oid)
            if found is not None and found[0] <= checkpoint:
                tid, _, state = found
                self._check_hit(process, oid, checkpoint + 1, (state, to_bytes(tid), None))
            for before in (checkpoint + 1, self._before(process, self._rotation)):
                hit = process.store.load_before(to_bytes(oid), to_bytes(before))
                if hit is not None:
                    self._check_hit(process, oid, before, hit)

    def _check_hit(self, process: Process, oid: int, before: int, found: Any) -> None:
        state, tid, end = found
        assert (oid, to_int(tid)) not in process.forgotten, "an own pack took it away"
        truth = self._truth(oid, before)
        is_right = (
            truth is not None
            and truth[:2] == (state, tid)
            and (end == truth[2] or (end is None and to_int(truth[2]) > process.log.end))
        )
        assert is_right or self._is_erased(oid, before, to_int(tid), state), (
            f"oid {oid} before {before} at checkpoint {process.log.end}:"
            f" {_brief((state, tid, end))} instead of {_brief(truth)}"
        )

    def _truth(self, oid: int, before: int) -> Any:
        """What the base storage says, or said before somebody packed it."""
        try:
            truth = self.server.everything.load_before(oid, before)
        except POSKeyError:
            return None
        return None if truth is None else (expand(truth[0]), truth[1], truth[2])

    def _is_erased(self, oid: int, before: int, tid: int, state: bytes) -> bool:
        """Whether it is what the base storage has forgotten on its own: of that no word came."""
        revisions = self.server.database.revisions.get(oid)
        return (
            oid in self.server.erased
            and (revisions is None or revisions[0].tid >= before)
            and any(
                revision.tid == tid and revision.state and expand(revision.state) == state
                for revision in self.server.everything.revisions[oid]
            )
        )

    def _check_file(self, writer: Process) -> None:
        """I1 and I6 of the file, once a process has settled that it is of this history."""
        if not writer.storage._persistence.is_settled:
            return
        cache_file = CacheFile.open(
            self.directory, identity="zeo:('server', 1):1", limit_bytes=10**9
        )
        try:
            with cache_file.snapshot() as snapshot:
                through = snapshot.checkpoint
                for oid, tid, _, state in snapshot.rows(2**63 - 1, 10**9):
                    truth = self._truth(oid, through + 1)
                    found = state, to_bytes(tid), None
                    assert (truth is not None and truth[:2] == found[:2]) or self._is_erased(
                        oid, through + 1, tid, state
                    ), f"oid {oid} at the file's {through}: {_brief(found)}, not {_brief(truth)}"
                assert snapshot.skipped == 0
        finally:
            cache_file.close()
