"""gunicorn's configuration: it has loaded the application when it reads ``wsgi_app``'s hooks."""

from __future__ import annotations

import atexit
import json
import os
from pathlib import Path
from typing import Any

JOB = json.loads(os.environ["FORKING_JOB"])

bind = "127.0.0.1:0"
control_socket_disable = True
graceful_timeout = 25
loglevel = "warning"
preload_app = True
timeout = 60
workers = JOB["workers"]
wsgi_app = "forking.application:application"


@atexit.register
def _tell_the_end() -> None:
    """The last of all that is done at the exit, for it was registered first."""
    Path(JOB["ended"], str(os.getpid())).touch()


def when_ready(server: Any) -> None:
    """Before there are workers."""
    from forking import application

    (address,) = [listener.getsockname() for listener in server.LISTENERS]
    print(json.dumps({"workers": address[1], "parent": application.serve_parent()}), flush=True)


def pre_fork(server: Any, worker: Any) -> None:
    from forking import application

    application.before_fork()


def post_fork(server: Any, worker: Any) -> None:
    from forking import application

    application.begin_child()
