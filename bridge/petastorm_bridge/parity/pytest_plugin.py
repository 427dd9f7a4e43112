"""The pytest plugin: the fixture ``parity``, the marker of that name and ``--parity-record``.

pytest imports this module at every start, in any project that has the package installed: nothing
here may import anything but pytest.
"""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

if TYPE_CHECKING:
    from ._result import Result

__all__ = ["Parity"]

_MARKER = (
    "parity(**rules): how the `parity` fixture compares in this test: order='shuffled', "
    "allow=['partition-order'], any field of petastorm_bridge.parity.Rules"
)


class Parity:
    """What the fixture ``parity`` gives.

    Attributes:
        rules: Fields of `Rules`, from the test's ``parity`` markers; the innermost wins.
        golden_directory: Where `check` keeps recordings: ``golden`` beside the test's file.
        recording: Whether `check` records instead of comparing (``--parity-record``).
    """

    def __init__(
        self, rules: dict[str, Any], golden_directory: Path, scratch: Path, *, recording: bool
    ) -> None:
        self.rules = rules
        self.golden_directory = golden_directory
        self.recording = recording
        self._scratch = scratch

    def record(self, loader: Any, name: str = "recording", **options: Any) -> Path:
        """Record a loader in the test's temporary directory and return where.

        Args:
            loader: As for `petastorm_bridge.parity.record`, and so are the options.
            name: Name of the recording.
            **options: ``epochs``, ``limit``, ``rows``, ``rank``, ``world_size``, ``overwrite``.
        """
        from .recorder import record

        record(loader, self._scratch / name, **options)
        return self._scratch / name

    def assert_same(self, a: Any, b: Any, **changes: Any) -> Result:
        """Fail unless two sides give the same batches, under the test's rules.

        Args:
            a: How it should be: the directory of a recording, or a loader.
            b: What is judged, likewise.
            **changes: As for `petastorm_bridge.parity.assert_same_batches`.

        Raises:
            AssertionError: They differ.
        """
        __tracebackhide__ = True
        from petastorm_bridge.parity import assert_same_batches

        return assert_same_batches(a, b, **{**self.rules, **changes})

    def check(self, loader: Any, name: str, **changes: Any) -> Result | None:
        """Fail unless a loader gives what was recorded under this name.

        With ``--parity-record`` the recording is made, or made anew, and nothing is compared.

        Args:
            loader: A loader, or a function that returns one.
            name: Name of the recording below the golden directory.
            **changes: As for `petastorm_bridge.parity.assert_same_batches`.

        Raises:
            AssertionError: They differ.
            CannotCompareError: There is no such recording.
        """
        __tracebackhide__ = True
        golden = self.golden_directory / name
        if not self.recording:
            return self.assert_same(golden, loader, labels=(name, "loader"), **changes)
        from .recorder import record

        options = {key: changes[key] for key in ("epochs", "limit", "rows") if key in changes}
        golden.parent.mkdir(parents=True, exist_ok=True)
        record(loader, golden, overwrite=True, **options)
        return None


def pytest_addoption(parser: pytest.Parser) -> None:
    """Add ``--parity-record``."""
    parser.getgroup("parity").addoption(
        "--parity-record",
        action="store_true",
        help="record what `parity.check` is given instead of comparing it",
    )


def pytest_configure(config: pytest.Config) -> None:
    """Register the marker."""
    config.addinivalue_line("markers", _MARKER)


@pytest.fixture
def parity(request: pytest.FixtureRequest, tmp_path: Path) -> Parity:
    """Record loaders and compare what they give; see `Parity`."""
    rules: dict[str, Any] = {}
    for marker in reversed(list(request.node.iter_markers("parity"))):
        rules.update(marker.kwargs)
    directory = request.path.parent / "golden"
    recording = bool(request.config.getoption("--parity-record"))
    return Parity(rules, directory, tmp_path, recording=recording)
