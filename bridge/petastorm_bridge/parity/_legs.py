"""Start the processes that record loaders, wait for all of them, and keep their last words."""

from __future__ import annotations

import subprocess
import time
from pathlib import Path

from ._recording import CannotCompareError

__all__ = ["Legs"]

_STEP_SECONDS = 0.05
# How long the others may go on once one rank has failed: they wait for it and do not know.
_GRACE_SECONDS = 10.0


class Legs:
    """Processes that work together; leaving the context ends those that are left.

    What they print goes to files: a full pipe that nobody reads would stop them.

    Args:
        scratch: Directory for those files.
        package: What they run, for messages.
        timeout: Seconds that one wait may take.
    """

    def __init__(self, scratch: str, package: str, timeout: float) -> None:
        self._scratch, self._package = Path(scratch), package
        self._timeout = timeout
        self._running: list[tuple[subprocess.Popen[bytes], Path]] = []
        self._started = 0
        self.said = ""

    def __enter__(self) -> Legs:  # noqa: PYI034 - typing.Self needs Python 3.11
        return self

    def __exit__(self, *error: object) -> None:
        self._kill()

    def start(self, command: list[str], environment: dict[str, str]) -> None:
        """Start one more.

        Raises:
            CannotCompareError: Its program cannot be run.
        """
        self._started += 1
        words = self._scratch / f"{self._package}-{self._started}.said"
        try:
            with words.open("wb") as file:
                process = subprocess.Popen(  # noqa: S603 - the interpreter is the user's choice
                    command, stdout=subprocess.DEVNULL, stderr=file, env=environment
                )
        except OSError as error:
            raise CannotCompareError(
                f"{self._package}: {command[0]} cannot be run: {error}"
            ) from error
        self._running.append((process, words))

    def wait(self) -> None:
        """Wait until all have ended, or the time is up, or one has failed and the others hang.

        How a process ends says nothing of its recording (Petastorm sometimes aborts after its last
        row), so nothing is raised; the first failure's last words are kept in ``said``.
        """
        end = time.monotonic() + self._timeout
        failed = False
        while self._running:
            for entry in list(self._running):
                code = entry[0].poll()
                if code is None:
                    continue
                self._running.remove(entry)
                if code and not failed:
                    failed = True
                    end = min(end, time.monotonic() + _GRACE_SECONDS)
                    said = _last_line(entry[1]) or f"it ended with code {code} and no word"
                    self.said = self.said or said
            if self._running and time.monotonic() > end:
                self.said = self.said or f"it did not end within {self._timeout:g} seconds"
                self._kill()
            time.sleep(_STEP_SECONDS if self._running else 0)

    def _kill(self) -> None:
        for process, _ in self._running:
            process.kill()
            process.wait()
        self._running.clear()


def _last_line(path: Path) -> str:
    lines = path.read_text("utf-8", errors="replace").splitlines()
    return next((line.strip() for line in reversed(lines) if line.strip()), "")
