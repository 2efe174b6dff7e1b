"""The graph: what is stored, what refers to what, and that a walk reads it evenly."""

from __future__ import annotations

import pytest
import ZODB
from ZODB.MappingStorage import MappingStorage

from zodbcache.demo import build
from zodbcache.demo.clients import fresh_connection
from zodbcache.demo.model import ROOT_KEY
from zodbcache.demo.stdlib import parse_source
from zodbcache.demo.walk import CHUNK_OBJECTS
from zodbcache.demo.walk import walk

SOURCES = {
    "base": "class Base:\n    def run(self): pass\n",
    "user": "import base\nclass User(base.Base):\n    def go(self):\n        self.run()\n"
    "        print()\ndef start():\n    return User()\n",
    "many": "".join(f"def f{number}(): pass\n" for number in range(3 * CHUNK_OBJECTS)),
}


@pytest.fixture
def database(monkeypatch):
    monkeypatch.setattr(build, "MODULES_PER_TRANSACTION", 2)
    facts = [parse_source(text, name) for name, text in SOURCES.items()]
    database = ZODB.DB(MappingStorage(), cache_size=1_000_000)
    with fresh_connection(database) as connection:
        assert list(build.store_graph(connection, facts)) == [2, 1, 2, 1]
    yield database
    database.close()


def test_edges_are_references(database):
    with fresh_connection(database) as connection:
        modules = connection.root()[ROOT_KEY].modules
        base, user = modules["base"], modules["user"]
        assert user.imports == (base,)
        assert user.classes["User"].bases == (base.classes["Base"],)
        go = user.functions["User.go"]
        assert go.owner is user.classes["User"]
        assert go.calls == (base.functions["Base.run"],)
        assert go.unresolved == ("print",)
        assert user.functions["start"].calls == (user.classes["User"],)


def test_callers_are_found_by_what_they_call(database):
    with fresh_connection(database) as connection:
        callers = connection.root()[ROOT_KEY].callers
        assert {called: list(names) for called, names in callers.items()} == {
            "base:Base.run": ["user:User.go"],
            "user:User": ["user:start"],
        }


def test_every_definition_is_an_object_of_its_own(database):
    with fresh_connection(database) as connection:
        functions = connection.root()[ROOT_KEY].modules["many"].functions
        assert len({function._p_oid for function in functions.values()}) == len(functions)


def read(database, *, objects=10**9, seed=1):
    with fresh_connection(database) as connection:
        return walk(connection, objects=objects, seed=seed)


def test_a_walk_reads_the_same_again(database):
    first, second = read(database), read(database)
    assert first.objects > 3 * CHUNK_OBJECTS
    assert (first.objects, first.checksum) == (second.objects, second.checksum)


def test_a_walk_counts_each_object_once(database):
    walked = read(database)
    assert walked.objects == len(walked.versions)


def test_a_walk_ends_after_the_chunk_that_has_enough(database):
    walked = read(database, objects=CHUNK_OBJECTS + 1)
    assert CHUNK_OBJECTS < walked.objects <= 2 * CHUNK_OBJECTS + 10
    assert len(walked.chunks_ms_per_500) == 2


def test_the_checksum_sees_a_changed_object(database):
    before = read(database)
    with fresh_connection(database) as connection:
        connection.root()[ROOT_KEY].modules["base"].revision += 1
        connection.transaction_manager.commit()
    after = read(database)
    assert after.checksum != before.checksum
    assert sum(1 for oid in before.versions if before.versions[oid] != after.versions[oid]) == 1
