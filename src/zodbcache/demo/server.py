"""The process that serves the demo's database, until the demo closes its input or is gone."""

from __future__ import annotations

from pathlib import Path

from zodbcache.demo.messages import ServerJob
from zodbcache.demo.messages import Serving
from zodbcache.demo.parent import Parent


def main() -> None:
    parent = Parent()
    job: ServerJob = parent.receive()
    with job.base.serve(Path(job.directory)) as address:
        parent.send(Serving(address))
        parent.wait_until_gone()


if __name__ == "__main__":
    main()
