"""What becomes of a DataFrame's columns when it is written."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Any

import pyarrow as pa

from .columns import ColumnPlan, plan_columns

Infos = list[dict[str, Any]]
MapShards = Callable[[Any, Iterable[dict[str, Any]]], Infos]


class Form:
    """The form of Petastorm's converter: columns keep their types, and nulls get flags beside them.

    Attributes:
        refusals: Exceptions of a form's own that reach the caller as they are.
    """

    refusals: tuple[type[Exception], ...] = ()

    def plan(self, df: Any, dtype: str | None, *, case_sensitive: bool) -> ColumnPlan:
        """Return what to write of a DataFrame; see :func:`plan_columns`."""
        return plan_columns(df, dtype, case_sensitive=case_sensitive)

    def settle(
        self,
        schema: pa.Schema,
        infos: Infos,
        map_shards: MapShards,  # noqa: ARG002 - for forms that change something
    ) -> tuple[pa.Schema, Infos]:
        """Decide on what only the written data tell, before they become a dataset.

        Args:
            schema: What was planned.
            infos: What :meth:`ShardWriter.finish` returned for the shards, in row order.
            map_shards: Runs a function that pickles, and whose attribute ``directory`` is set where
                it runs, on the infos of some shards; returns the infos that it returns.

        Returns:
            The schema of the dataset and the infos of its shards.
        """
        return schema, infos


CONVERTER = Form()
