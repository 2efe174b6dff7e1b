"""The process that started this one, as seen from here.

Jobs come pickled on standard input, messages go pickled to standard output.
When the input ends, the parent is gone or wants this process to stop: so no
child outlives its parent, however that died.
"""

from __future__ import annotations

import os
import pickle
import sys
import threading
from typing import Any


class Parent:
    """Call :meth:`receive` for what the parent sends first, then one of the other two.

    Whatever else the process prints goes to standard error.
    """

    def __init__(self) -> None:
        self._input = sys.stdin.buffer
        self._output = os.fdopen(os.dup(1), "wb")
        os.dup2(2, 1)

    def receive(self) -> Any:
        """The next object the parent sends.  Raises EOFError when there is none."""
        return pickle.load(self._input)

    def send(self, message: object) -> None:
        pickle.dump(message, self._output)
        self._output.flush()

    def wait_until_gone(self) -> None:
        """Return when the parent closes our input or dies."""
        # Not self._input: its lock, held by a thread that waits, would abort our own exit.
        while os.read(self._input.fileno(), 4096):
            pass

    def exit_when_gone(self) -> None:
        """From now on, a thread of ours ends this process when the parent is gone."""

        def watch() -> None:
            self.wait_until_gone()
            os._exit(1)

        threading.Thread(target=watch, name="parent-watch", daemon=True).start()
