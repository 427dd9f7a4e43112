"""The arguments of Petastorm's loader methods, by what becomes of them in streaming's words."""

from __future__ import annotations

from petastorm_bridge._tables.options import OPTIONS

TRANSLATED = frozenset(
    {
        "batch_size",
        "cur_shard",
        "data_loader_fn",
        "num_epochs",
        "seed",
        "shard_count",
        "shard_seed",
        "shuffle_row_groups",
        "shuffle_rows",
        "shuffling_queue_capacity",
        "transform_spec",
        "workers_count",
    }
)
# Arguments that change what is read.
REFUSED = {
    "drop_last": "leave it out: streaming repeats rows where a rank lacks some",
    "filters": "filter the DataFrame",
    "predicate": "filter the DataFrame",
    "rowgroup_selector": "filter the DataFrame",
    "schema_fields": "select the columns of the DataFrame, or name them in a PandasCollate",
}
_METHODS = frozenset({"make_batch_reader", "make_tf_dataset", "make_torch_dataloader"})
ALL = frozenset(
    {option.name for option in OPTIONS if option.api in _METHODS}
    | {"min_after_retrieve"}  # of older releases of Petastorm
)
# They say how rows are read, not which; streaming finds its ranks by itself.
DROPPED = ALL - TRANSLATED - REFUSED.keys() - {"dataset_url_or_urls"}
