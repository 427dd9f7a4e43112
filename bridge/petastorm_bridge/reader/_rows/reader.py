"""The rows of a dataset that Petastorm wrote, one by one (``petastorm/reader.py``)."""

from __future__ import annotations

import json
import warnings
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from typing import Any

from petastorm_bridge._blocks.columns import Block
from petastorm_bridge._sources.parquet import ParquetSource
from petastorm_bridge._sources.source import Source
from petastorm_bridge._workers.locks import ForkSafeLock
from petastorm_bridge.errors import PetastormMetadataError
from petastorm_bridge.ngram import NGram
from petastorm_bridge.reader._arguments import ReaderOptions
from petastorm_bridge.reader._job import Job
from petastorm_bridge.reader._passes import Pass
from petastorm_bridge.reader._reader import Reader
from petastorm_bridge.reader._selection import Condition, Selection
from petastorm_bridge.unischema import Unischema, tuple_class

from .indexes import stored_indexes
from .job import Layout, RowJob, column_name, separate_rows
from .schema import ROW_GROUPS_KEY, UNISCHEMA_KEY, read_schema

_NOT_PETASTORMS = (
    "Currently make_reader supports reading only Petastorm datasets. "
    "To read from a non-Petastorm Parquet store use make_batch_reader"
)


class RowReader(Reader):
    """Iterates over rows as namedtuples, or over sequences of them as dictionaries of namedtuples.

    The schema is the one that lies beside the dataset. Where there is none, as in a plain Parquet store, it is
    that of the files, with a warning.

    Attributes:
        ngram: The sequences asked for, or None.

    Raises:
        StoredSchemaError: The schema is none, or would run something.
    """

    is_batched_reader = False
    batched_output = False

    def __init__(self, source: Source, options: ReaderOptions) -> None:
        self._lock = ForkSafeLock()
        self._rows: Iterator[Any] = iter(())
        self._block = Block({}, 0)
        self._taken = 0
        self._pass: Pass | None = None  # that the block is of
        notes = source.common_metadata() if isinstance(source, ParquetSource) else None
        self._notes = notes or {}
        pickled = self._notes.get(UNISCHEMA_KEY)
        if pickled is None:
            warnings.warn(_NOT_PETASTORMS, stacklevel=4)
        schema = source.schema if pickled is None else read_schema(pickled)
        self.ngram = None
        if isinstance(options.schema_fields, NGram):
            self.ngram = options.schema_fields
            self.ngram.resolve_regex_field_names(schema)
        super().__init__(source, options, None if pickled is None else schema)

    # What is different from a reader of row groups.

    def _selected_schema(self, schema: Unischema, description: str) -> Unischema:
        if self.ngram is None:
            return super()._selected_schema(schema, description)
        wanted = {field.name for field in self.ngram.get_field_names_at_all_timesteps()}
        return schema.create_schema_view([f for n, f in schema.fields.items() if n in wanted])

    def _select(
        self, source: Source, stored: Unischema, filters: Sequence[Sequence[Condition]]
    ) -> Selection:
        selection = super()._select(source, stored, filters)
        selector = self._options.rowgroup_selector
        if selector is None:
            return selection
        indexes = stored_indexes(self._notes)
        _check_row_groups(self._notes, source)
        wanted = selector.get_index_names()
        if not set(wanted) <= set(indexes):
            raise ValueError(
                f"Some of required indexes {wanted} are not available in {list(indexes)}"
            )
        selected = selector.select_row_groups(indexes)
        dropped = {i for i, group in enumerate(selection.groups) if group not in selected}
        return replace(selection, dropped=selection.dropped | dropped)

    def _make_job(self, source: Source, stored: Unischema, selection: Selection) -> Job:
        layout = None if self.ngram is None else Layout.of(self.ngram, self.schema)
        return RowJob(
            source, stored, self.schema, self._options.transform_spec, selection.predicate,
            selection.filters, layout=layout,
            shuffle_seed=self._options.seed if self._options.shuffle_rows else None,
        )  # fmt: skip

    @property
    def keeps_rows(self) -> bool:
        """Whether every stored row comes through by itself."""
        return self.ngram is None and super().keeps_rows

    # Rows.

    def __next__(self) -> Any:
        with self._lock:
            while True:
                if self._pass is self.passes.current and not self.stopped:
                    for row in self._rows:
                        self._taken += 1
                        return row
                self._take(super().next_block())

    def next_block(self) -> Block:
        """Return what is left of the rows that are being taken one by one, else the next block."""
        with self._lock:
            block, taken = self._block, self._taken
            is_left = self._pass is self.passes.current and taken < block.num_rows
            self._take(Block({}, 0))
            if is_left and not self.stopped:
                columns = {name: values[taken:] for name, values in block.columns.items()}
                return Block(columns, block.num_rows - taken, block.ends_epoch)
            return super().next_block()

    def _take(self, block: Block) -> None:
        self._block, self._taken, self._pass = block, 0, self.passes.current
        self._rows = iter(self.rows(block))

    def rows(self, block: Block) -> Iterator[Any]:
        """Yield the rows of a block as the reader's own iteration does."""
        if not block.num_rows:
            return iter(())
        if self.ngram is not None:
            return self._sequences(block)
        make = tuple_class(self.schema)._make
        return map(make, separate_rows(block.columns, self.schema.fields))

    def _sequences(self, block: Block) -> Iterator[dict[int, Any]]:
        assert self.ngram is not None
        steps = []
        for step in self.ngram.timesteps:
            schema = self.ngram.get_schema_at_timestep(self.schema, step)
            make = tuple_class(schema)._make
            names = [column_name(step, name) for name in schema.fields]
            rows = separate_rows(block.columns, names) if names else [()] * block.num_rows
            steps.append(map(make, rows))
        for sequence in zip(*steps, strict=True):
            yield dict(zip(self.ngram.timesteps, sequence, strict=True))

    def shown(self, name: str, column: Any) -> Any:  # noqa: ARG002 – of readers that show Arrow's
        """Return a column of a block: its values are those of the rows already."""
        return column


def _check_row_groups(notes: Mapping[bytes, bytes], source: Source) -> None:
    """Raise PetastormMetadataError if a source does not have the row groups that its indexes number."""
    if ROW_GROUPS_KEY not in notes or not isinstance(source, ParquetSource):
        return  # they stand in a file _metadata, if anywhere
    try:
        noted = {path: count for path, count in json.loads(notes[ROW_GROUPS_KEY]).items() if count}
    except (ValueError, AttributeError, RecursionError):
        noted = None
    if noted != source.row_groups_per_file():
        raise PetastormMetadataError(
            "Files were added, removed or written again since the row group indexes were built, which would select "
            "other row groups. Run petastorm_bridge.etl.rowgroup_indexing.build_rowgroup_index again."
        )
