"""The codemod as LibCST commands.

``python -m libcst.tool codemod -x petastorm_codemods.libcst_commands.PetastormToStreaming PATH`` rewrites
modules; notebooks and dependency files need ``petastorm-bridge codemod``.
"""

from __future__ import annotations

from typing import ClassVar

import libcst as cst
from libcst.codemod import CodemodCommand

from ._engine import process
from ._model import Destination, Failed, NeedsHuman, Rewritten
from ._settings import Settings

__all__ = ["PetastormToBridge", "PetastormToStreaming"]


class _Command(CodemodCommand):
    """Runs the rules on one module; what is left to a human is a warning."""

    destination: ClassVar[Destination]

    def transform_module_impl(self, tree: cst.Module) -> cst.Module:
        """Return the rewritten module.

        Raises:
            RuntimeError: The rewrite did not pass its checks.
        """
        path = self.context.filename or "module.py"
        outcome = process(path, tree.bytes, Settings(self.destination))
        if isinstance(outcome, Failed):
            raise RuntimeError(outcome.reason)  # noqa: TRY004 - an outcome, not an argument
        for site in outcome.sites:
            if isinstance(outcome, NeedsHuman) and site.confidence == "none":
                self.warn(f"{path}:{site.line}: {site.code} {site.message}")
        if not isinstance(outcome, Rewritten):
            return tree
        return cst.parse_module(outcome.after)


class PetastormToBridge(_Command):
    """``--to bridge``."""

    DESCRIPTION = "Import petastorm_bridge in the place of petastorm."
    destination = Destination.BRIDGE


class PetastormToStreaming(_Command):
    """``--to streaming``."""

    DESCRIPTION = "Rewrite Petastorm call sites into native streaming calls."
    destination = Destination.STREAMING
