"""What the context managers of the converter's two methods do.

The public classes are in ``spark_dataset_converter``, where Petastorm has them; they say how a reader
is opened, because that module is where tests patch ``make_batch_reader``.
"""

from __future__ import annotations

import inspect
from collections.abc import Callable
from typing import Any, Generic, NoReturn

from petastorm_bridge._reading.names import refuse_unknown
from petastorm_bridge.reader import make_batch_reader
from petastorm_bridge.typing import LoaderT

__all__ = ["TFDatasetContext", "TorchDatasetContext"]


class _ReaderContext:
    """Opens a reader; closes it on exit, and when making the loader fails."""

    _made_by: str  # the converter's method
    _own_arguments: tuple[str, ...]  # of that method
    parquet_file_url_list: list[str]
    batch_size: int | None
    petastorm_reader_kwargs: dict[str, Any]
    reader: Any

    def __iter__(self) -> NoReturn:
        raise TypeError(
            f"'{type(self).__name__}' object is not iterable: it opens the files when it is entered. "
            "Write: with converter.make_…(…) as batches: for batch in batches: …"
        )

    def __repr__(self) -> str:
        urls = self.parquet_file_url_list
        where = f" in {urls[0].rpartition('/')[0]}" if urls else ""
        return (
            f"<{type(self).__name__} of {len(urls)} files{where}, batch_size={self.batch_size}; "
            "enter it with 'with'>"
        )

    def _open_reader(self) -> Any:
        """Return a reader of the files with the arguments that were given."""
        raise NotImplementedError(f"{type(self).__name__} does not say how a reader is opened.")

    def _open(self, use: Callable[[Any], Any]) -> Any:
        self._check_names()
        self.reader = self._open_reader()
        try:
            return use(self.reader)
        except BaseException:
            self._close()
            raise

    def _check_names(self) -> None:
        known = inspect.signature(make_batch_reader).parameters
        unknown = [name for name in self.petastorm_reader_kwargs if name not in known]
        refuse_unknown(self._made_by, unknown, [*self._own_arguments, *known])

    def _close(self) -> None:
        self.reader.stop()
        self.reader.join()

    def __exit__(self, exc_type: object, exc_value: object, exc_traceback: object) -> None:
        self._close()


class TFDatasetContext(_ReaderContext):
    """Opens a reader and gives a ``tf.data.Dataset`` on it until the context is left."""

    _made_by = "make_tf_dataset"
    _own_arguments = ("batch_size", "prefetch", "shuffling_queue_capacity")

    def __init__(
        self,
        parquet_file_url_list: list[str],
        batch_size: int | None,
        prefetch: int | None,
        petastorm_reader_kwargs: dict[str, Any],
        shuffling_queue_capacity: int | None,
    ) -> None:
        self.parquet_file_url_list = parquet_file_url_list
        self.batch_size = batch_size
        self.prefetch = prefetch
        self.petastorm_reader_kwargs = petastorm_reader_kwargs
        self.shuffling_queue_capacity = shuffling_queue_capacity

    def __enter__(self) -> Any:
        from petastorm_bridge.tf_utils import make_batched_dataset

        return self._open(
            lambda reader: make_batched_dataset(
                reader,
                batch_size=self.batch_size or 32,
                shuffling_queue_capacity=self.shuffling_queue_capacity,
                prefetch=self.prefetch,
            )
        )


class TorchDatasetContext(_ReaderContext, Generic[LoaderT]):
    """Opens a reader and gives a loader of torch tensors on it until the context is left."""

    _made_by = "make_torch_dataloader"
    _own_arguments = ("batch_size", "shuffling_queue_capacity", "data_loader_fn")

    def __init__(
        self,
        parquet_file_url_list: list[str],
        batch_size: int,
        petastorm_reader_kwargs: dict[str, Any],
        shuffling_queue_capacity: int,
        data_loader_fn: Callable[..., LoaderT] | None,
    ) -> None:
        self.parquet_file_url_list = parquet_file_url_list
        self.batch_size = batch_size
        self.petastorm_reader_kwargs = petastorm_reader_kwargs
        self.shuffling_queue_capacity = shuffling_queue_capacity
        self.data_loader_fn = data_loader_fn

    def __enter__(self) -> LoaderT:
        from petastorm_bridge.pytorch import DataLoader

        self.loader: LoaderT = self._open(
            lambda reader: (self.data_loader_fn or DataLoader)(
                reader=reader,
                batch_size=self.batch_size,
                shuffling_queue_capacity=self.shuffling_queue_capacity,
            )
        )
        return self.loader
