"""The ZEO server of the demo: a process of its own on a free port of the loopback address.

It serves a new FileStorage until the demo closes its input or is gone.
"""

from __future__ import annotations

import os
from pathlib import Path

import ZEO

from zodbcache.demo.messages import ServerJob
from zodbcache.demo.messages import Serving
from zodbcache.demo.parent import Parent


def main() -> None:
    parent = Parent()
    job: ServerJob = parent.receive()
    os.chdir(job.directory)  # ZEO.server() writes its configuration to the working directory
    (host, port), stop = ZEO.server(path=str(Path(job.directory) / "Data.fs"))
    parent.send(Serving((host, port)))
    parent.wait_until_gone()
    stop()


if __name__ == "__main__":
    main()
