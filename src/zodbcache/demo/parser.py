"""A process that parses its share of the standard library and sends the facts."""

from __future__ import annotations

from zodbcache.demo.messages import Parsed
from zodbcache.demo.messages import ParserJob
from zodbcache.demo.parent import Parent
from zodbcache.demo.stdlib import parse_file
from zodbcache.demo.stdlib import stdlib_sources


def main() -> None:
    parent = Parent()
    job: ParserJob = parent.receive()
    parent.exit_when_gone()
    for source in stdlib_sources(job.limit)[job.first :: job.stride]:
        parent.send(Parsed(parse_file(source)))


if __name__ == "__main__":
    main()
