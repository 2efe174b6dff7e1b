from __future__ import annotations

import contextlib

import pytest

from .helpers import BASES
from .helpers import wrap


@pytest.fixture(params=BASES.values(), ids=BASES.keys())
def make_base(request, tmp_path):
    """Opens the storages of one kind in the test's directory; all are closed at the end."""
    with contextlib.ExitStack() as opened:

        def make():
            base = request.param(tmp_path)
            opened.callback(base.close)
            return base

        yield make


@pytest.fixture
def base(make_base):
    return make_base()


@pytest.fixture
def cache_dir(tmp_path):
    return tmp_path / "cache"


@pytest.fixture
def storage(base, cache_dir):
    """A cache over the base, with a file."""
    storage = wrap(base, cache_dir)
    yield storage
    storage.close()
