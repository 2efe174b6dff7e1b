"""Progress bars for the long parts."""

from __future__ import annotations

import contextlib
from collections.abc import Callable
from collections.abc import Iterator

from rich.console import Console
from rich.progress import BarColumn
from rich.progress import MofNCompleteColumn
from rich.progress import Progress
from rich.progress import TextColumn
from rich.progress import TimeElapsedColumn

Advance = Callable[[int], object]


class ProgressBars:
    """One bar for each long part, drawn below one another."""

    def __init__(self, console: Console) -> None:
        self._progress = Progress(
            TextColumn("{task.description:<36}"),
            BarColumn(),
            MofNCompleteColumn(),
            TimeElapsedColumn(),
            console=console,
        )

    def __enter__(self) -> ProgressBars:
        self._progress.start()
        return self

    def __exit__(self, *exc_info: object) -> None:
        self._progress.stop()

    @contextlib.contextmanager
    def part(self, description: str, total: int) -> Iterator[Advance]:
        """A bar that the callable given advances.  *total* may be a guess: the end is the end."""
        task = self._progress.add_task(description, total=total)
        yield lambda amount: self._progress.advance(task, amount)
        done = next(t.completed for t in self._progress.tasks if t.id == task)
        self._progress.update(task, total=done)
