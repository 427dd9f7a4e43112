"""Schemas: choosing fields of them by patterns, and inferring them from Parquet files."""

import re

import numpy as np
import pyarrow as pa
import pytest
from growth import count_calls
from pyarrow import parquet
from stored import write_stored

from petastorm_bridge import errors, make_batch_reader
from petastorm_bridge.etl import dataset_metadata
from petastorm_bridge.etl.petastorm_generate_metadata import generate_petastorm_metadata
from petastorm_bridge.reader._rows.store import store_at
from petastorm_bridge.unischema import Unischema, UnischemaField, match_unischema_fields

try:
    import petastorm
except ImportError:  # today's versions
    petastorm = None


def test_each_of_many_patterns_is_compiled_once():
    """``re`` keeps 512 compiled patterns; a table has more columns than that."""

    def cost(fields):
        schema = Unischema(
            "S", [UnischemaField(f"f{i}", np.int64, (), None, False) for i in range(fields)]
        )
        patterns = [f"f{i}" for i in range(600)]
        re.purge()
        return count_calls(lambda: match_unischema_fields(schema, patterns))

    assert cost(8) < 2 * cost(2)


COLUMNS = pa.table(
    {
        "small": pa.array([1, None], pa.int32()),
        "text": ["x", "y"],
        "real": [0.5, 1.5],
        "list": pa.array([[1], [2]], pa.list_(pa.int32())),
    }
)


@pytest.mark.filterwarnings("ignore::DeprecationWarning", "ignore::FutureWarning")
@pytest.mark.parametrize("folders", ["", "k=1/m=2", "k=one/m=2"], ids=["flat", "integers", "texts"])
def test_the_schema_of_files_is_that_of_a_reader_of_them(tmp_path, folders):
    (tmp_path / folders).mkdir(parents=True, exist_ok=True)
    parquet.write_table(COLUMNS, tmp_path / folders / "a.parquet")
    inferred = Unischema.from_arrow_schema(parquet.ParquetDataset(str(tmp_path)))
    packages = [make_batch_reader, *([petastorm.make_batch_reader] if petastorm else [])]
    for make in packages:
        with make(tmp_path.as_uri()) as reader:
            wanted = {name: tuple(field) for name, field in reader.schema.fields.items()}
        assert {name: tuple(field) for name, field in inferred.fields.items()} == wanted


def test_large_lists_are_lists_as_a_reader_has_them(tmp_path):
    table = pa.table({"large": pa.array([[1], [2]], pa.large_list(pa.int32()))})
    parquet.write_table(table, tmp_path / "a.parquet")
    inferred = Unischema.from_arrow_schema(parquet.ParquetDataset(str(tmp_path)))
    with make_batch_reader(tmp_path.as_uri()) as reader:
        assert inferred.fields == reader.schema.fields
    assert inferred.fields["large"].shape == (None,)


def test_a_damaged_schema_is_one_error_everywhere(tmp_path):
    """It is caught as Petastorm's own, and never taken for a schema that is not there."""
    schema = Unischema("S", [UnischemaField("id", np.int64, (), None, False)])
    url = write_stored(tmp_path / "t", schema, [{"id": np.int64(1)}], pickle=b"damaged")
    assert dataset_metadata.PetastormMetadataError is errors.PetastormMetadataError
    for read in (
        lambda: dataset_metadata.get_schema_from_dataset_url(url),
        lambda: dataset_metadata.infer_or_load_unischema(store_at(url)),
        lambda: generate_petastorm_metadata(None, url),
    ):
        with pytest.raises(dataset_metadata.PetastormMetadataError) as caught:
            read()
        assert caught.type is errors.StoredSchemaError
