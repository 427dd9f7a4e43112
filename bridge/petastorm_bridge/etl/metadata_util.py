"""Prints what is stored with a dataset: ``python -m petastorm_bridge.etl.metadata_util --dataset-url URL``.

The script of ``petastorm/etl/metadata_util.py``.
"""

from __future__ import annotations

import argparse
import sys
from collections.abc import Sequence

from petastorm_bridge.reader._rows.store import store_at

from .dataset_metadata import get_schema
from .rowgroup_indexing import get_row_group_indexes

__all__ = ["main"]


def main(arguments: Sequence[str] | None = None) -> None:
    """Print schema and indexes of a dataset.

    Args:
        arguments: Of the command line; None for those of the process.

    Raises:
        PetastormMetadataError: No schema is stored.
        ValueError: No indexes are stored.
    """
    parser = argparse.ArgumentParser(
        prog="metadata utility", description="Show the metadata of a dataset"
    )
    parser.add_argument("--dataset-url", required=True, help="URL of the dataset's directory")
    parser.add_argument("--schema", action="store_true", help="show the schema")
    parser.add_argument("--index", action="store_true", help="list the indexes of row groups")
    parser.add_argument(
        "--print-values", action="store_true", help="show the row groups of each value"
    )
    parser.add_argument("--skip-index", nargs="+", default=[], help="indexes without their values")
    parser.add_argument("--hdfs-driver", default="libhdfs3", help="without effect")
    given = parser.parse_args(arguments)
    store = store_at(given.dataset_url.rstrip("/"))
    shows_all = not given.schema and not given.index
    if given.schema or shows_all:
        sys.stdout.write(f"*** Schema from dataset metadata ***\n{get_schema(store)}\n")
    if given.index or shows_all:
        indexes = get_row_group_indexes(store)
        lines = ["*** Row group indexes from dataset metadata ***"]
        for name, index in indexes.items():
            lines.append(f"Index: {name}")
            if name in given.skip_index:
                lines.append("  (skipped)")
                continue
            for value in index.indexed_values:
                groups = index.get_row_group_indexes(value)
                lines.append(f"  -- {value}({len(groups)})")
                if given.print_values:
                    lines.append(str(groups))
        sys.stdout.write("\n".join(lines) + "\n")


if __name__ == "__main__":
    main()
