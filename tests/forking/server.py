"""A real gunicorn with a preloaded application."""

from __future__ import annotations

import json
import os
import select
import subprocess
import sys
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any
from urllib.request import urlopen

from .forks import WAIT_SECONDS

HERE = Path(__file__).parent


class Gunicorn:
    """Runs from the constructor to stop(); *job* is the application's, as it says."""

    def __init__(self, directory: Path, job: dict[str, Any]) -> None:
        self.cache = directory / "cache"
        self._ended = directory / "ended"
        self._ended.mkdir(exist_ok=True)
        self.job = {"cache": str(self.cache), "ended": str(self._ended), **job}
        paths = [str(HERE.parent), *sys.path]
        self._process = subprocess.Popen(
            [sys.executable, "-m", "gunicorn", "-c", str(HERE / "gunicorn_conf.py")],
            cwd=directory,
            env={
                **os.environ,
                "FORKING_JOB": json.dumps(self.job),
                "PYTHONPATH": os.pathsep.join(map(os.path.abspath, paths)),
            },
            stdout=subprocess.PIPE,
        )
        assert self._process.stdout is not None
        ready, _, _ = select.select([self._process.stdout], [], [], WAIT_SECONDS)
        assert ready, "did not start in time"
        self._ports = json.loads(self._process.stdout.readline())

    @property
    def pid(self) -> int:
        return self._process.pid

    def _ask(self, to: str, message: object) -> dict[str, Any]:
        url = f"http://127.0.0.1:{self._ports[to]}/"
        with urlopen(url, json.dumps(message).encode(), timeout=WAIT_SECONDS) as response:
            answer: dict[str, Any] = json.load(response)
        return answer

    def ask_parent(self, command: str, argument: Any = None) -> Any:
        found = self._ask("parent", [command, [argument], False])
        assert found["pid"] == self.pid
        return found["answer"]

    def ask_children(self, command: str, arguments: Sequence[Any] = (None,)) -> dict[int, Any]:
        """Each child's answer, by its pid; the *arguments* go round, in no certain order."""
        count = self.job["workers"]
        message = [command, list(arguments), True]
        with ThreadPoolExecutor(count) as threads:
            found = list(threads.map(lambda _: self._ask("workers", message), range(count)))
        answers = {each["pid"]: each["answer"] for each in found}
        assert len(answers) == count and self.pid not in answers
        return answers

    def stop(self) -> None:
        """SIGTERM; everybody comes to the end of its atexit functions."""
        children = self.ask_children("settle")  # now they have their signal handlers
        self._process.terminate()
        assert self._process.wait(WAIT_SECONDS) == 0
        assert {int(path.name) for path in self._ended.iterdir()} >= {self.pid, *children}

    def close(self) -> None:
        if self._process.poll() is None:
            self._process.kill()
            self._process.wait(WAIT_SECONDS)
        assert self._process.stdout is not None
        self._process.stdout.close()
