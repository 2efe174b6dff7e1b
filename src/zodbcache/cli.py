"""The ``zodbcache`` command: one subcommand a function, each an exit status.

0 is success, 1 a failure told in one line, 2 a wrong command line, 130 an
interruption by Ctrl-C.
"""

from __future__ import annotations

import argparse
import sys
from collections.abc import Sequence
from pathlib import Path

from zodbcache.demo.bases import BASES
from zodbcache.demo.bases import DEFAULT_BASE
from zodbcache.errors import ZODBCacheError

_DEMO_OBJECTS = 30_000


def main(argv: Sequence[str] | None = None) -> int:
    """Run the command line *argv*, by default this process's; return the exit status."""
    arguments = _parser().parse_args(argv)
    try:
        arguments.run(arguments)
    except ZODBCacheError as exc:
        print(f"zodbcache: {exc}", file=sys.stderr)
        return 1
    except KeyboardInterrupt:
        print("zodbcache: interrupted; all that was started has stopped", file=sys.stderr)
        return 130
    return 0


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(prog="zodbcache", description="An object cache for ZODB.")
    commands = parser.add_subparsers(required=True, metavar="COMMAND")
    _add_demo(commands)
    return parser


def _add_demo(commands: argparse._SubParsersAction[argparse.ArgumentParser]) -> None:
    demo = commands.add_parser(
        "demo",
        help="show what the cache does, on a real database",
        description="Store a cross-reference of Python's standard library in a database of its "
        "own, and read it without the cache, with an empty one, a warm one, after a restart, and "
        "from four processes. Takes one to two minutes on two cores.",
    )
    demo.add_argument(
        "--base",
        choices=BASES,
        default=DEFAULT_BASE,
        help="the storage and its server: ZEO, or RelStorage on a PostgreSQL started for the "
        "demo, or RelStorage on SQLite (default: %(default)s)",
    )
    demo.add_argument("--json", type=Path, metavar="FILE", help="write the figures to FILE")
    demo.add_argument(
        "--plot",
        type=Path,
        metavar="FILE",
        default=Path("zodbcache-demo.png"),
        help="write the plot to FILE (default: %(default)s)",
    )
    demo.add_argument(
        "--objects",
        type=_positive,
        metavar="N",
        default=_DEMO_OBJECTS,
        help="read about N objects in each phase (default: %(default)s)",
    )
    demo.add_argument("--quick", action="store_true", help="use 40 modules only: takes seconds")
    demo.add_argument(
        "--keep",
        type=Path,
        metavar="DIR",
        help="work in DIR and leave the database and the cache's file there",
    )
    demo.set_defaults(run=_demo)


def _demo(arguments: argparse.Namespace) -> None:
    from zodbcache.demo import main as demo_main

    demo_main(
        base=arguments.base,
        json_path=arguments.json,
        plot_path=arguments.plot,
        objects=arguments.objects,
        quick=arguments.quick,
        keep=arguments.keep,
    )


def _positive(text: str) -> int:
    number = int(text)
    if number < 1:
        raise argparse.ArgumentTypeError(f"{text} is not a positive number")
    return number


if __name__ == "__main__":
    sys.exit(main())
