"""The known differences: where the bridge deliberately does not do what Petastorm does.

The only list of them. The guide's page is generated from it, the parity suite accepts no other
difference, and a test fails when an entry is exercised by no test.
"""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True)
class Difference:
    """One deliberate difference.

    Attributes:
        name: Identifier and anchor, e.g. ``"no-lost-rows"``.
        area: Heading it stands under in the guide.
        petastorm: What Petastorm 0.13.1 does.
        bridge: What happens here.
        reason: Why.
    """

    name: str
    area: str
    petastorm: str
    bridge: str
    reason: str


def _area(area: str, *rows: tuple[str, str, str, str]) -> tuple[Difference, ...]:
    return tuple(Difference(row[0], area, row[1], row[2], row[3]) for row in rows)


# Headings of the guide, and whom what stands there touches.
AREAS = {
    "Rows and epochs": "count rows or steps, iterate a loader more than once, or leave a loop early",
    "Order and shuffling": "compare orders of rows with earlier runs, or pass a seed",
    "Sharding": "train in several processes",
    "Types and nulls": "have nulls, times, decimals or unsigned numbers in the table",
    "Names and paths": "have columns or paths with spaces, dots or names of Python's own",
    "Predicates and filters": "pass `predicate` or `filters`",
    "Reader options": "pass options about caches, pools or file systems",
    "Parquet files and worker processes": "read Parquet directly, or Delta or Iceberg tables, or use a process pool",
    "Converter and cache": "look into the cache directory, delete it, or convert one table twice",
    "Petastorm's own datasets": "use `make_reader` or `materialize_dataset`",
}

DIFFERENCES: tuple[Difference, ...] = (
    *_area(
        "Rows and epochs",
        ("no-lost-rows",
         "A race between Petastorm's threads ends epochs early: up to a quarter of the epochs over "
         "a two-row table come back empty.",
         "Every epoch is complete.", "Lost rows are never wanted."),
        ("reiteration-starts-clean",
         "Iterating a `DataLoader` again prepends the partial last batch of the pass before.",
         "A new pass starts with its own first row.", "The repeated rows are an oversight."),
        ("loader-left-early-starts-again",
         "A loader that was left early cannot be iterated again: `NotImplementedError`, or, when the "
         "reader happened to be done, the rows that were left as well. Lightning's sanity check "
         "and `limit_train_batches` end in it.",
         "A loader that was left early begins a new pass. A reader's own `reset()` is refused in "
         "the middle of a pass, as in Petastorm.",
         "Whoever iterates again wants the rows."),
        ("tf-reiteration-restarts",
         "A `tf.data.Dataset` of a finite `num_epochs` that was left early goes on when it is "
         "iterated again, without the rows that had been read ahead: often with nothing. Two "
         "iterators at once share the rows or fail with `StopIteration`.",
         "Each iterator of a `tf.data.Dataset` with a finite `num_epochs` is a complete pass. "
         "With `num_epochs=None` iterators go on as in Petastorm; a Python loop over the dataset "
         "itself then loses no batch.",
         "Never a silent loss."),
        ("stop-iteration-is-an-error",
         "A `StopIteration` raised by a transform silently ends the epoch.",
         "A `StopIteration` that a transform raises becomes a `RuntimeError`.",
         "Never a silent loss."),
        ("endless-empty-ends",
         "`num_epochs=None` with a predicate that matches nothing hangs.",
         "An endless iteration ends with a warning after the first epoch without a row, as when a"
         " predicate matches nothing.",
         "A hang helps nobody."),
        ("endless-whole-batch-refused",
         "A batch size that no batch can reach (`None`, `0`, `2.5`) with endless epochs collects "
         "rows until memory is full.",
         "A batch size that no batch can reach (`None`, `0`, `2.5`) with endless epochs is a "
         "`ValueError` at the first batch.",
         "The loader could never yield anything."),
        ("batched-size-checked",
         "`BatchedDataLoader` with a batch size of 0 or less gives empty batches without end.",
         "`BatchedDataLoader` with a batch size of 0 or less is a `ValueError`.",
         "A loop without end helps nobody."),
        ("loader-length",
         "`len(loader)` is a `TypeError`, which frameworks take for a loader of unknown length.",
         "`len(loader)` is the number of batches of a whole pass; still a `TypeError` with "
         "`num_epochs=None`, a predicate, filters or a transform, and in subclasses that make the"
         " batches. For `InMemBatchedDataLoader` it counts all epochs, for `BatchedDataLoader` "
         "the reader's rows, whatever `transform_fn` does.",
         "Lightning resumes at the right batch only if it knows the length. It now accepts "
         "`val_check_interval=0.5`, and refuses an interval longer than the pass."),
        ("inmem-empty",
         "`InMemBatchedDataLoader` over no rows raises a `TypeError`.",
         "`InMemBatchedDataLoader` over no rows gives no batch.",
         "The other loaders do the same."),
        ("inmem-transform-fn",
         "`InMemBatchedDataLoader` raises an `AttributeError` or a `TypeError` where its `transform_fn` "
         "gives anything but a tensor. `BatchedDataLoader` makes a tensor of it.",
         "`InMemBatchedDataLoader`, as `BatchedDataLoader`, makes a tensor of what `transform_fn`"
         " gives.",
         "One function for both loaders."),
        ("transform-fn-equal-rows",
         "Where `transform_fn` gives other numbers of rows for some columns than for others, a batch "
         "silently holds values of different rows, or batches of different length.",
         "A `transform_fn` that gives more rows for some columns than for others is a "
         "`ValueError`.",
         "Mixed-up rows are wrong rows."),
        ("transform-fn-types",
         "Where `transform_fn` gives a wider type for a later row group, a shuffle buffer and "
         "`InMemBatchedDataLoader` cast its values to the first one's type: fractions are cut off.",
         "Where `transform_fn` gives a wider type for a later row group, batches get the wider type, as in "
         "Petastorm without a shuffle buffer.",
         "Never a silent loss."),
    ),
    *_area(
        "Order and shuffling",
        ("partition-order",
         "Files are read in the order of Spark's `inputFiles()`, which is arbitrary, and with many "
         "row groups and several workers not even in that order.",
         "Rows come in the DataFrame's partition order, whatever the number of workers.",
         "An order that cannot be predicted cannot be relied on."),
        ("seed-zero", "`seed=0` means no seed.", "`0` is a seed like any other.",
         "A seed makes everything reproducible."),
        ("seed-governs-all",
         "The shuffle buffers ignore `seed`; with several workers a seed does not always reproduce "
         "the order.",
         "A seed reproduces every order, whatever the number of workers.",
         "A seed makes everything reproducible."),
        ("epochs-shuffled-anew",
         "Row groups are shuffled once per pass: all epochs of `num_epochs=N` have one order.",
         "Every epoch has an order of its own; the first is Petastorm's.",
         "Epochs in the same order train worse."),
        ("row-permutations-differ",
         "In `make_batch_reader` with `shuffle_rows` and a seed, row groups of different workers get the "
         "same permutation.",
         "In `make_batch_reader` with `shuffle_rows` and a seed, every row group gets its own "
         "permutation, the one that Petastorm gives it with one worker. `make_reader` gives "
         "Petastorm's order: one permutation for all row groups, in every epoch.",
         "Repeated permutations are not random, but programs may rely on those that never depend on "
         "workers."),
        ("shuffle-buffer-per-epoch",
         "Rows of one epoch slip into the next through the shuffle buffer.",
         "The shuffle buffer is emptied at the end of every epoch.",
         "Every row exactly once per epoch."),
        ("shuffle-capacity-one",
         "`shuffling_queue_capacity=1` raises `ValueError: high <= 0` in `DataLoader`.",
         "`shuffling_queue_capacity=1` shuffles within row groups, as 2 does.",
         "Nothing is wrong with the argument."),
        ("shuffle-buffer-memory",
         "Any torch shuffle buffer allocates 800 MB.",
         "A shuffle buffer takes the memory that its rows need.",
         "The margin is not used."),
        ("row-drop-keeps-rows",
         "`shuffle_rows` with `shuffle_row_drop_partitions` permutes a row group anew for each of its "
         "parts: some rows come twice and others not at all. In `make_reader` only without a seed; with "
         "one, all parts are of one permutation.",
         "With `shuffle_rows` and `shuffle_row_drop_partitions` each part of a row group shuffles"
         " its own rows, so that every row comes once. With a seed `make_reader` gives "
         "Petastorm's parts.",
         "Every row exactly once per epoch."),
        ("predicate-keeps-rows-whole",
         "`shuffle_rows` together with a predicate permutes the predicate's columns and the others "
         "differently, mixing up rows; in `make_reader` only without a seed.",
         "`shuffle_rows` together with a predicate keeps the values of a row together.",
         "Mixed-up rows are wrong rows."),
    ),
    *_area(
        "Sharding",
        ("equal-shards",
         "Shards are whole row groups, so their sizes differ.",
         "Sizes of shards differ by at most one row, after predicates and filters on partition "
         "columns. Where Petastorm's shards are equal, they are the same here. Predicates and "
         "filters on other columns leave shards unequal, as in Petastorm.",
         "Unequal shards make distributed training hang or drop rows."),
        ("more-shards-than-row-groups",
         "`NoDataAvailableError` when there are more shards than row groups.",
         "Any number of shards up to the number of rows works. More are a `NoDataAvailableError` "
         "with other words than Petastorm's.",
         "Row groups are a detail of storage."),
        ("negative-shards",
         "A negative `shard_count` gives all rows, some of them or none, without a word.",
         "A negative `shard_count` is a `ValueError`.",
         "Never a silent loss."),
        ("rank-reads-everything",
         "Under torchrun and the like a reader without shards reads all rows on every rank and says nothing.",
         "Under torchrun and the like a reader without shards reads all rows on every rank, and "
         "warns once, with what to pass.",
         "Training on every row as often as there are ranks is hardly ever meant."),
        ("numpy-shards",
         "`cur_shard=numpy.int64(0)` raises a `ValueError`, and with shards `seed=numpy.int64(7)` a "
         "`TypeError`.",
         "`cur_shard`, `shard_count` and `seed` may be NumPy integers.",
         "Nothing is wrong with the argument."),
        ("horovod-warning-formats",
         "Under Horovod without shards the warning itself fails to format.",
         "Under Horovod without shards the warning is given.",
         "It was meant to be."),
    ),
    *_area(
        "Types and nulls",
        ("one-dtype-per-column",
         "A column's dtype flips from batch to batch with where its nulls are.",
         "A column's dtype is decided once per dataset: it is what Petastorm gives for a single "
         "row group that holds a null. A column with null lists is of objects in all batches of a"
         " reader without predicate, filters and transform.",
         "Models expect one dtype."),
        ("tf-null-warning",
         "TensorFlow silently receives nulls as 0, the smallest integer, `False` or `b'None'`.",
         "TensorFlow receives nulls as 0, the smallest integer, `False` or `b'None'` too, with "
         "one `NullValueWarning` that names the column; `warnings.simplefilter('error', "
         "NullValueWarning)` makes it an error.",
         "Never silently."),
        ("tf-long-nulls-exact",
         "A null in a row group rounds its other 64-bit integers above 2^53 on their way to "
         "TensorFlow.",
         "64-bit integers beside a null stay exact on their way to TensorFlow.",
         "Only the nulls have no value."),
        ("uint64-in-torch",
         "`DataLoader` raises a `TypeError` for unsigned 64-bit values of a transform and for `uint64` "
         "fields of `make_reader`.",
         "`DataLoader` makes a `uint64` tensor of unsigned 64-bit values, as `BatchedDataLoader` "
         "does.",
         "torch has the type now."),
        ("tf-dtype-objects",
         "A transform's field with `numpy.dtype('float32')`, `'float32'`, `float`, `float16` or "
         "`uint64` is refused by `make_tf_dataset`, and a `uint64`, `float16` or complex field of "
         "`make_reader` by `make_petastorm_dataset`.",
         "`make_tf_dataset` and `make_petastorm_dataset` accept whatever names a NumPy type that "
         "TensorFlow has, such as `'float32'` and `float`.",
         "`make_torch_dataloader` accepts them too."),
        ("first-of-two-errors",
         "Where a batch has several faults, such as null lists beside lists of another length, the "
         "error is about the row group that was read first.",
         "Where a batch has several faults, the error may be about another one than in Petastorm.",
         "It is an error either way."),
        ("strided-arrays",
         "A transform's arrays of several axes must be C-contiguous: those of `.transpose(2, 0, 1)` "
         "are a `ValueError`, `only support row major multi-dimensional array`.",
         "A transform may give arrays of any layout in memory.",
         "The rows are copied into a batch in any case."),
        ("timestamp-range",
         "Timestamps before 1900 fail while Spark writes them; others outside the years 1678 to "
         "2261 wrap around silently.",
         "Timestamps of all years convert. Where a loader or transform needs nanoseconds, a "
         "`ValueError` names the problem.",
         "Never wrong values."),
        ("trailing-nuls",
         "Strings lose NUL characters at their end.",
         "Strings keep NUL characters at their end.",
         "Never wrong values."),
        ("categories-keep-precision",
         "A transform's `pandas.Categorical` of `float32` reaches torch as `float64`.",
         "A transform's `pandas.Categorical` of `float32` stays `float32`.",
         "The transform said which precision it wants."),
        ("tf-array-of-dates",
         "Arrays of dates fail in `make_tf_dataset`.",
         "Arrays of dates are nanoseconds in `make_tf_dataset`, like dates and arrays of "
         "timestamps.",
         "Nothing is wrong with the type."),
    ),
    *_area(
        "Names and paths",
        ("torch-column-names",
         "Columns whose names are no identifiers, are keywords, start with an underscore or are "
         "`self` convert but fail in iteration.",
         "Torch batches are dictionaries: every name works. TensorFlow's namedtuples still need "
         "identifiers; `self` works.",
         "Nothing is wrong with the names."),
        ("table-order",
         "The order of columns in a transform's DataFrame and under `schema_fields` depends on the "
         "hash seed; only partition columns have a place, the last in the DataFrame.",
         "Columns in a transform's DataFrame and under `schema_fields` come in the order of the "
         "table; in the DataFrame partition columns come last, as in Petastorm.",
         "An order that cannot be predicted cannot be relied on."),
        ("paths-with-spaces",
         "A cache directory with a space or `%` in its path cannot be read back.",
         "A cache directory may have a space or `%` in its path.",
         "Nothing is wrong with the path."),
    ),
    *_area(
        "Predicates and filters",
        ("predicates-work",
         "Through a converter only `in_lambda` works; `in_set`, `in_negate`, `in_reduce` with "
         "`all` or `any`, `in_pseudorandom_split` and functions that return arrays fail.",
         "All of `petastorm.predicates` work through a converter, on row groups. So does a "
         "predicate on all keys of a table with several partition columns, an `AssertionError` in"
         " Petastorm: it gets their values.",
         "They are part of the API."),
        ("predicate-keeps-dtypes",
         "Integers of a partly matching row group become `float64`. Where the matching rows hold only "
         "nulls, a column of strings is objects of `None` in place of the text `'None'`, and one of lists "
         "loses its axis.",
         "Dtypes and axes are those without a predicate.",
         "A dtype must not depend on which rows match."),
        ("predicate-with-transform",
         "A predicate with a transform that only removes fields, removes the partition column that "
         "the predicate is about, or has multi-dimensional fields, fails.",
         "A predicate works beside a transform that only removes fields, that removes the "
         "predicate's partition column, or that has multi-dimensional fields.",
         "They are part of the API."),
        ("filters-work",
         "`filters` fails with an `AttributeError` for a converter and for a list of files. For a "
         "directory it chooses by partition columns only: conditions on other columns, and on names "
         "that no column has, are taken as fulfilled, so that rows come which the filters exclude. "
         "Where no partition is left, it is an `IndexError`. No condition (`filters=[]`) is a "
         "`ValueError`.",
         "`filters` work for converters and lists of files too. Conditions on partition columns "
         "choose as in Petastorm; those on other columns are applied to rows. A name that no "
         "column has is a `ValueError`, and where nothing is left the reader warns and gives "
         "nothing. `filters=[]` is the same error.",
         "A filter that is not applied is worse than an error."),
    ),
    *_area(
        "Reader options",
        ("local-disk-cache-keeps-files",
         "`cache_type='local-disk'` keeps transformed row groups on disk. The end of a `with` over the "
         "reader, or `cleanup_cache()`, removes the directory and prints a line, for any cache; a "
         "converter's loaders leave it behind.",
         "`cache_type='local-disk'` keeps copies of the files that are read, if they are in a "
         "store or on a mount; those of a local disk are read in place. The transform runs in "
         "every epoch. Copies stay in `cache_location` for the next run, until others need the "
         "room; nothing is printed.",
         "A cached random augmentation is none, and what is stored can be shared by readers, ranks and runs."),
        ("ignored-arguments-warn",
         "`hdfs_driver`, `zmq_copy_buffers`, `convert_early_to_numpy` and `cache_extra_settings` steer "
         "parts that the bridge does not have.",
         "`hdfs_driver`, `zmq_copy_buffers`, `convert_early_to_numpy` and `cache_extra_settings` "
         "have no effect; values other than the default give an `IgnoredArgumentWarning`.",
         "Every old argument has a stated fate."),
        ("filesystem-ignored",
         "Passing a pyarrow `filesystem` raises a `ValueError` about `validate_schema`.",
         "A pyarrow `filesystem` is ignored with a warning.",
         "The url says where the data is."),
        ("remote-stores-are-read",
         "With pyarrow 12 to 14 a url that fsspec opens (`s3://`, `gs://`, `http://`, …) raises a "
         "`ValueError` about `validate_schema`.",
         "A url that fsspec opens (`s3://`, `gs://`, `http://`, …) is read. A store that does not"
         " answer is a `RemoteError`, which is an `OSError`.",
         "Nothing is wrong with the url."),
        ("directory-in-a-list",
         "`make_reader([url])` and `make_batch_reader([url])` of a directory are a `TypeError`.",
         "A list of one directory is read as the directory.", "It is clear what is meant."),
        ("weighted-sampling-works",
         "`WeightedSamplingReader` fails on `numpy.float`, which NumPy has had no more since 1.24.",
         "`WeightedSamplingReader` works.",
         "It is part of the API."),
        ("dataset-of-no-reader",
         "`make_petastorm_dataset(None)` hangs.",
         "`make_petastorm_dataset(None)` is an `AttributeError`.",
         "A hang helps nobody."),
        ("tf-tensors-run",
         "`tf_tensors` with a `shuffling_queue_capacity` is an `OperatorNotAllowedInGraphError`, and with a "
         "timestamp an `InternalError`, under TensorFlow 2.",
         "`tf_tensors` with a `shuffling_queue_capacity`, or with a timestamp, works under "
         "TensorFlow 2.",
         "It is part of the API."),
    ),
    *_area(
        "Parquet files and worker processes",
        ("parquet-one-dtype",
         "Files of one table whose column types differ give batches of differing dtype; a column "
         "that a later file lacks is a `TypeError` in the middle of the data or, where it is the only "
         "one that is read, leaves out that file's rows without a word.",
         "A column whose type differs between the files of a table has the widest of the types "
         "everywhere; a missing column or types that cannot be joined are a `TypeError`, naming "
         "the files, when the reader is opened.",
         "Models expect one dtype, and errors belong to the start."),
        ("columns-of-nulls",
         "A column that is of Arrow's null type in the first file and of numbers in a later one is "
         "left out of the table; `RuntimeError: No fields matching` where it is the only one.",
         "A column that is of Arrow's null type in the first file and of numbers in a later one "
         "has the later file's type; in the first file all its values are null.",
         "pandas writes such files where a column is empty."),
        ("partition-values-in-place",
         "With several partition columns a row group now and then gets the value of one column in "
         "another: the scan of the directories is a race.",
         "Values of partition columns are those of the path.",
         "A wrong label is worse than none."),
        ("stored-index",
         "A pandas index that was stored with the table (`DataFrame.to_parquet`) makes any transform "
         "fail with a `ValueError` about result columns.",
         "A pandas index that was stored with the table is a column of the transform's DataFrame,"
         " as it is in batches.",
         "Nothing is wrong with the table."),
        ("common-metadata-ignored",
         "A `_common_metadata` file beside Parquet data that Petastorm did not write is a "
         "`PetastormMetadataError`.",
         "A `_common_metadata` file that Petastorm did not write is ignored, and the files are "
         "read.",
         "Dask and pandas leave such files."),
        ("large-partition-numbers",
         "Partition directories with integers beyond 64 bits fail with an `OverflowError`.",
         "Values of partition directories that are integers beyond 64 bits stay text.",
         "Nothing is wrong with the table."),
        ("log-tables-are-read",
         "A directory of a Delta or Iceberg table is read as loose Parquet files: rows that were "
         "deleted or overwritten come back, and updated rows come in all their versions.",
         "Of a Delta or Iceberg table exactly the live rows are read, with the extra `delta` or "
         "`iceberg`: those of the current version or of the one in the path (`…/table@v3`, "
         "`…/table@20260131235959000`). Partition columns are columns of the table like the "
         "others. Without the extra, and where the log names files outside of the table's own "
         "directory, it is a `ValueError` that says how to read the live rows.",
         "Never wrong rows."),
        ("parquet-more-types",
         "`uint16`, `uint32`, and large strings, binaries and lists, which current pandas and "
         "Polars write, are left out with a warning.",
         "`uint16`, `uint32`, and large strings, binaries and lists are read.",
         "The same data came as plain strings before pandas 3."),
        ("process-pool-names",
         "With `reader_pool_type='process'` a function of the program loses the program's imports "
         "and classes: `NameError`.",
         "With `reader_pool_type='process'` the program's imports and classes go to the worker "
         "processes with the function.",
         "The same function works with threads."),
    ),
    *_area(
        "Converter and cache",
        ("reuse-includes-names",
         "A conversion is reused for any plan with the same result, ignoring column names: two "
         "selects with names exchanged come back with columns exchanged.",
         "A conversion is reused only if names and types of the columns are the same too.",
         "Never wrong values."),
        ("reuse-by-meaning",
         "`compression_codec='snappy'` and `'SNAPPY'` are two conversions of one DataFrame.",
         "`compression_codec='snappy'` and `'SNAPPY'` are one conversion of one DataFrame.",
         "The files are the same."),
        ("reuse-sees-new-source",
         "Overwriting the source files and reading them anew serves the old rows.",
         "A conversion is reused only if the source files are still what they were.",
         "Never stale rows."),
        ("conversion-errors",
         "A failing conversion raises Spark's `Py4JJavaError` and may leave files.",
         "A failing conversion raises `MaterializationError`, a `RuntimeError` that says in a "
         "sentence what failed; nothing is left. Spark's `AnalysisException` is passed on.",
         "The same error on Spark classic and Connect."),
        ("path-data-is-never-deleted",
         "`delete()` on a converter made from a path deletes the user's table.",
         "`delete()` on a converter made from a path warns and leaves the table.",
         "The bridge deletes only what it made."),
        ("delete-keeps-files-of-others",
         "`delete()` and the end of the program remove the cache directory with everything in it.",
         "`delete()` and the end of the program remove the shards, the index and the like; files "
         "that others put there stay, with a warning that names them.",
         "The bridge deletes only what it made."),
        ("killed-conversions-are-cleared",
         "What a killed conversion has written stays for ever.",
         "The next program that converts into the same parent directory removes what a killed "
         "conversion has written, on the same machine and local disk only. Until then readers raise "
         'an "unfinished conversion" error.',
         "Nobody reads it, it only takes space."),
        ("interrupt-stays-an-interrupt",
         "Ctrl-C during a conversion raises a `Py4JError` and leaves files.",
         "Ctrl-C during a conversion raises `KeyboardInterrupt`; the conversion's Spark jobs are "
         "cancelled and nothing is left.",
         "Programs rely on `except Exception` not catching it."),
        ("written-again-when-removed",
         "After the cache directory was removed from outside, converting the same DataFrame fails: "
         "`AnalysisException [PATH_NOT_FOUND]`.",
         "After the cache directory was removed from outside, the same DataFrame is written "
         "again.",
         "The rows are still to be had."),
        ("use-after-delete-at-once",
         "A loader on a deleted cache waits 30 s for the files before its `RuntimeError`.",
         "A loader on a cache that this process deleted fails at once, with the same error.",
         "There is nothing to wait for."),
        ("path-needs-no-conf",
         "A converter made from a path needs a Spark session and the cache directory's conf.",
         "A converter made from a path needs neither a Spark session nor the cache directory's "
         "conf.",
         "Nothing is written."),
        ("databricks-volumes",
         "On Databricks a converter's path must be on DBFS.",
         "On Databricks a converter's path may be in a Unity Catalog volume as well, and a cache "
         "directory there gives no warning.",
         "Volumes are where Databricks keeps files now."),
        ("dbfs-cache-dir",
         "`dbfs:/…` as cache directory: `ValueError: URLs must be of the form dbfs://bucket/path`.",
         "`dbfs:/…` as cache directory is the mounted directory `/dbfs/…` (`/Volumes/…` for a "
         "volume), or a `ValueError` that says that there is none on this machine.",
         "The same form is accepted for paths."),
        ("files-are-mds",
         "`cache_dir_url` and `file_urls` are a Parquet directory and its files.",
         "`cache_dir_url` and `file_urls` are a directory of MDS shards and its files: "
         "`make_batch_reader` and streaming read them; Spark and Arrow say that they are not "
         "Parquet.",
         "MDS is what the bridge is for."),
        ("timestamps-are-nanoseconds",
         "`spark.sql.parquet.outputTimestampType=TIMESTAMP_MICROS` makes timestamps "
         "`datetime64[us]`, and `datetime64[us, UTC]` in a transform's DataFrame.",
         "`spark.sql.parquet.outputTimestampType` has no effect: timestamps are nanoseconds "
         "without a time zone, in UTC, as with Spark's default.",
         "It is a setting of Spark's writer of files, which the bridge does not use."),
        ("nullable-tells-of-nulls",
         "`UnischemaField.nullable` says whether Spark's schema allows nulls in the column.",
         "`UnischemaField.nullable` says whether nulls were found when the DataFrame was written.",
         "What is there decides on a column's dtype, and Spark allows nulls nearly everywhere."),
        ("unsupported-texts",
         "The warning about an unsupported column names the type as Parquet has it: "
         "`StructType(struct<a: int64 not null>)`.",
         "The warning about an unsupported column names the Arrow type that Spark's becomes, "
         "`struct<a: int64>`; the text around it is the same.",
         "Such a column is never written, so there is no file to tell its type."),
        ("small-shards-are-fine",
         "Files below 50 MB give a warning that advises to repartition, for every conversion and every "
         "reuse.",
         "Only small Parquet files at a path of the user's give the warning that advises to "
         "repartition.",
         "The advice is about Parquet."),
        ("max-records-per-file",
         "`spark.sql.files.maxRecordsPerFile` cuts files, and so row groups, at that many rows.",
         "`spark.sql.files.maxRecordsPerFile` has no effect; `parquet_row_group_size_bytes` sets "
         "the size of a shard.",
         "It is a setting of Spark's writer of files, which the bridge does not use."),
        ("cache-url-errors",
         "`file://tmp/x` as cache directory url is an `IllegalArgumentException` of Spark's, and `file:x` "
         "means `/x`.",
         "A cache directory url such as `file://tmp/x` is a `ValueError` that says what to write."
         " `file://localhost/x` works.",
         "A message about the mistake, not about its consequences."),
        ("all-codecs-work",
         "`bzip2` and `deflate` are accepted, but Spark cannot write Parquet with them.",
         "All six names of `compression_codec` work; `lz4` and `deflate` mean the nearest "
         "compression that MDS has.",
         "A name that is accepted should work."),
        ("row-group-size-checked",
         "`parquet_row_group_size_bytes` of `'abc'`, `1024.5` or `True` fails in every Spark task: "
         "`Py4JJavaError`.",
         "`parquet_row_group_size_bytes` of `'abc'`, `1024.5` or `True` is a `ValueError` or "
         "`TypeError` before anything runs.",
         "The mistake is known at once."),
        ("failed-loader-leaves-no-thread",
         "When `data_loader_fn` raises, the reader's threads run on.",
         "When `data_loader_fn` raises, the reader is closed.",
         "Nobody else can close it."),
        ("dotted-names-convert",
         "A floating-point column with a dot in its name fails in the conversion of its precision.",
         "A floating-point column with a dot in its name converts.",
         "Nothing is wrong with the name."),
        ("ancient-dates",
         "Dates and timestamps before the Gregorian calendar fail while Parquet is written: "
         "`INCONSISTENT_BEHAVIOR_CROSS_VERSION`.",
         "Dates and timestamps before the Gregorian calendar are written as they are.",
         "MDS has no old readers to be confused."),
    ),
    *_area(
        "Petastorm's own datasets",
        ("stored-schema-runs-nothing",
         "The stored schema, a pickle, may name whatever lies in `numpy`, `builtins`, `pyspark` and "
         "other packages, and so run any code: opening a dataset is running its author's program.",
         "Only names of an exact list may stand in a stored schema, and none of them is called. "
         "Anything else is a `StoredSchemaError` that names it.",
         "Data runs no code."),
        ("values-have-a-limit",
         "Whatever the bytes of an array or image announce is unpacked, whatever its field declares: a "
         "megabyte may become gigabytes.",
         "A value of more than 16 MiB must be no larger than the shape that its field declares or, where "
         "it declares none, than 256 MiB or 100 times its stored bytes; the environment variable "
         "`PETASTORM_BRIDGE_LARGEST_VALUE` sets another limit. Refused are also array files that "
         "announce more elements than they have bytes or are compressed otherwise than NumPy does, and, "
         "in fields of images as PNG, JPEG, WebP, BMP or TIFF, files of other kinds. The `DecodeFieldError` "
         "names field, row group and row.",
         "Data of others must not use up the memory."),
        ("files-without-rows",
         "A file without rows is a `ZeroDivisionError`.",
         "A file without rows is read, and gives no row.",
         "Spark writes such files."),
        ("field-order",
         "Fields that patterns of `schema_fields`, and those that an `NGram`, ask for stand in an order "
         "that depends on the hash seed.",
         "Fields that patterns of `schema_fields`, or an `NGram`, ask for come in the order of "
         "the schema.",
         "An order that cannot be predicted cannot be relied on."),
        ("sequences-shared-out",
         "Shards of an `NGram` are whole row groups, unequal in size.",
         "With `timestamp_overlap=True` a shard of an `NGram` has the sequences that begin in its"
         " rows, and all shards have equally many; none is lost where shards meet.",
         "As for rows."),
        ("null-timestamps",
         "A null in a `TimestampType` field, or in a column of timestamps of a plain Parquet store, is a "
         "`DecodeFieldError`. Nulls of other types are `None`.",
         "A null timestamp is `NaT`, in TensorFlow the smallest integer.",
         "A nullable field may hold nulls."),
        ("objects-compare",
         "Comparing a `UnischemaField` or an `NGram` with anything else is an `AttributeError`, an "
         "`NGram` has no hash, and a `Unischema` is shown by its address.",
         "A `UnischemaField` or an `NGram` compared with anything else is False, an `NGram` has a"
         " hash, and a `Unischema` shows its fields.",
         "As for other objects."),
        ("plain-lists",
         "`make_reader` on a plain Parquet store makes a scalar of a list of one number, and the text "
         "of an array of a list of strings. Lists of dates, timestamps or decimals, and lists of integers "
         "with a null among them, are a `DecodeFieldError`.",
         "Lists of a plain Parquet store are arrays in `make_reader`.",
         "What a value is must not depend on its length."),
        ("torch-takes-ngrams",
         "Torch loaders fail over an `NGram`: `'dict' object has no attribute '_asdict'`.",
         "`DataLoader` gives a dictionary of batches by timestep; the others refuse with a "
         "`TypeError`.",
         "It is what whoever tries it wants."),
        ("partitions-of-booleans",
         "A boolean partition column is True in all rows: `numpy.bool_('false')`.",
         "A boolean partition column has the value that the directory says.",
         "A wrong label is worse than none."),
        ("row-group-metadata-not-needed",
         "A dataset whose `_common_metadata` lacks the numbers of row groups is a `RuntimeError`, and "
         "files added after it was written are a `KeyError`.",
         "Row groups are counted in the files themselves, so `_common_metadata` may lack their "
         "numbers, and files may be added. With a `rowgroup_selector` that is a `PetastormMetadataError` until the "
         "indexes are built again, since they number row groups.",
         "They are there to be read."),
    ),
)  # fmt: skip
