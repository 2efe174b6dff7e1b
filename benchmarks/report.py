"""How results are printed: a table a question, then what was aimed at."""

from __future__ import annotations

from collections.abc import Iterable
from collections.abc import Sequence
from dataclasses import dataclass


@dataclass(frozen=True)
class Goal:
    """A figure that the cache must reach.

    *bound*: *value* must not be above it; or not below it, if *at_least*.
    """

    text: str
    value: float
    bound: float
    at_least: bool = False

    @property
    def is_met(self) -> bool:
        return self.value >= self.bound if self.at_least else self.value <= self.bound

    def cells(self) -> tuple[str, ...]:
        sign = ">=" if self.at_least else "<="
        return (
            self.text,
            f"{self.value:.3g}",
            f"{sign} {self.bound:g}",
            "met" if self.is_met else "MISSED",
        )


def print_table(title: str, head: Sequence[str], rows: Iterable[Sequence[str]]) -> None:
    """Print rows of text in columns, the first to the left, the others to the right."""
    lines = [tuple(head), *map(tuple, rows)]
    widths = [max(map(len, column)) for column in zip(*lines, strict=True)]
    print(f"\n{title}\n")
    for line in lines:
        first, *others = (
            cell.ljust(width) if number == 0 else cell.rjust(width)
            for number, (cell, width) in enumerate(zip(line, widths, strict=True))
        )
        print("  ".join((first, *others)).rstrip())


def print_goals(goals: Sequence[Goal]) -> None:
    if goals:
        head = ("goal", "is", "must be", "")
        print_table("Goals", head, (goal.cells() for goal in goals))
