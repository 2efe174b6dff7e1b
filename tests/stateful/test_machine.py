"""The same world, its operations chosen and shrunk by hypothesis."""

from __future__ import annotations

from typing import Any

from hypothesis import HealthCheck
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine
from hypothesis.stateful import initialize
from hypothesis.stateful import rule

from .world import DELTAS_MAX
from .world import MOMENTS
from .world import OIDS
from .world import SIZES
from .world import Operation
from .world import World

PROCESSES = 2

numbers = st.integers(0, PROCESSES - 1)
oids = st.sampled_from(OIDS)
sizes = st.sampled_from((*SIZES, 0))
written = st.lists(st.tuples(oids, sizes), min_size=1, max_size=3, unique_by=lambda item: item[0])
gaps = st.integers(1, 3)
ages = st.one_of(st.just(0), st.integers(0, 20))
counts = st.sampled_from((1, 99))
none: st.SearchStrategy[list[Operation]] = st.just([])


def operation(name: str, *arguments: st.SearchStrategy[Any]) -> st.SearchStrategy[Operation]:
    return st.tuples(st.just(name), *arguments)


def some(operations: st.SearchStrategy[Operation]) -> st.SearchStrategy[list[Operation]]:
    return st.lists(operations, max_size=3)


plain_loads = operation("load", numbers, oids, ages, st.booleans(), none, none)
foreign = operation("foreign", written, gaps)
deliver = operation("deliver", numbers, counts)
ways = st.sampled_from(("store", "resolve", "undo", "restore", "abort"))
plain_commits = operation("commit", numbers, written, ways, gaps, st.booleans(), none, none)
announced = operation("announced", numbers, written, gaps, some(plain_loads), some(plain_loads))
reconnect = operation("reconnect", numbers, st.lists(written, max_size=6), st.booleans())
disconnect = operation("disconnect", numbers)
step = operation("step", numbers, st.booleans())
plain_mend = operation("mend", numbers, st.booleans(), none)

meanwhile = some(
    st.one_of(
        foreign,
        deliver,
        plain_loads,
        plain_commits,
        announced,
        reconnect,
        disconnect,
        step,
        plain_mend,
    )
)


class Cache(RuleBasedStateMachine):
    @initialize(queue_length=st.sampled_from((1, 5)))
    def begin(self, queue_length: int) -> None:
        self.world = World(PROCESSES, queue_length=queue_length)

    def teardown(self) -> None:
        if hasattr(self, "world"):
            self.world.end()

    @rule(one=st.one_of(foreign, deliver, plain_loads, plain_commits, announced))
    def do(self, one: Operation) -> None:
        self.world.do(one)

    @rule(one=operation("load", numbers, oids, ages, st.booleans(), meanwhile, meanwhile))
    def load_while_others_go_on(self, one: Operation) -> None:
        self.world.do(one)

    @rule(
        one=operation(
            "commit", numbers, written, ways, gaps, st.booleans(), some(plain_loads), meanwhile
        )
    )
    def commit_while_others_go_on(self, one: Operation) -> None:
        self.world.do(one)

    @rule(one=st.one_of(disconnect, step, reconnect))
    def lose_or_gain_the_connection(self, one: Operation) -> None:
        self.world.do(one)

    @rule(one=operation("mend", numbers, st.booleans(), meanwhile))
    def mend_while_others_go_on(self, one: Operation) -> None:
        self.world.do(one)

    @rule(one=operation("save", numbers, st.sampled_from(MOMENTS), meanwhile))
    def save_while_others_go_on(self, one: Operation) -> None:
        self.world.do(one)

    @rule(
        one=st.one_of(
            operation("open", numbers, st.sampled_from(DELTAS_MAX), meanwhile),
            operation("close", numbers),
            operation("crash", numbers),
        )
    )
    def start_or_stop(self, one: Operation) -> None:
        self.world.do(one)

    @rule(
        one=st.one_of(
            operation("pack", numbers),
            operation("pack_elsewhere"),
            operation("make_garbage", gaps),
            operation("collect_elsewhere"),
            operation("restart_server"),
            operation("copy_database"),
            operation("swap_database", st.integers(0, 1), st.lists(written, max_size=3)),
        )
    )
    def administrate(self, one: Operation) -> None:
        self.world.do(one)


Cache.TestCase.settings = settings(
    max_examples=150,
    stateful_step_count=40,
    deadline=None,
    suppress_health_check=[HealthCheck.too_slow, HealthCheck.data_too_large],
)
TestCache = Cache.TestCase
