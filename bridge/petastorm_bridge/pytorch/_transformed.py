"""Row groups as the tensors that a user's ``transform_fn`` makes of them.

Petastorm calls it once for each column of a row group, before any shuffling, and makes a tensor of
whatever it returns (``pytorch.py`` and ``reader_impl/pytorch_shuffling_buffer.py``). The tensors may
live on any device, and stay there.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import Any

import numpy as np
import numpy.typing as npt
import torch

from petastorm_bridge._blocks.batches import Batch, Run, different_shapes, divided, runs
from petastorm_bridge._blocks.columns import Block
from petastorm_bridge._blocks.shuffle import shuffle_pool

_BITS = {1: torch.uint8, 2: torch.int16, 4: torch.int32, 8: torch.int64}


def transformed(
    function: Callable[[Any], Any], *, of_rows: bool
) -> Callable[[Iterable[Block]], Iterator[Block]]:
    """Return what makes blocks of tensors, by a function of columns, of blocks of arrays.

    A column keeps its shape from block to block, and its type may only widen: Petastorm appends each
    row group to the last one.

    Args:
        function: Gets an array of shape ``(rows, …)``; what it returns may have other rows, as many
            in every column.
        of_rows: Whether it gets each value instead, in a list, as from a reader of rows.

    Raises:
        RuntimeError: A column has another shape than in a block before.
        ValueError: The columns of a block have different numbers of rows.
    """

    def tensor_of(values: npt.NDArray[Any]) -> torch.Tensor:
        values = np.ascontiguousarray(values)
        if of_rows:
            return torch.cat([_with_rows(function([value])) for value in values])
        return _with_rows(function(values))

    def convert(blocks: Iterable[Block]) -> Iterator[Block]:
        firsts: dict[str, torch.Tensor] = {}  # no rows, of the shape and type of the blocks before
        for block in blocks:
            tensors = {}
            for name, values in block.columns.items() if block.num_rows else ():
                tensor = tensor_of(values)
                first = firsts.setdefault(name, tensor.detach()[:0].clone())
                if tensor.shape[1:] != first.shape[1:]:
                    raise different_shapes(name, [first, tensor])
                if tensor.dtype != first.dtype:
                    firsts[name] = first.to(torch.promote_types(first.dtype, tensor.dtype))
                    tensor = tensor.to(firsts[name].dtype)
                tensors[name] = tensor
            yield Block(tensors, _rows(tensors), block.ends_epoch)

    return convert


def _with_rows(values: Any) -> torch.Tensor:
    tensor = torch.as_tensor(values)
    len(tensor)  # raises TypeError for a single number, which has no rows, as in Petastorm
    return tensor


def _rows(tensors: Batch) -> int:
    """Return how many rows there are in each column."""
    rows = {name: len(tensor) for name, tensor in tensors.items()}
    if len(set(rows.values())) > 1:
        raise ValueError(
            f"transform_fn returned different numbers of rows for the columns of one row group: {rows}. "
            "Return as many for every column, or drop rows in a TransformSpec."
        )
    return next(iter(rows.values()), 0)


def cut_tensors(blocks: Iterable[Block], size: int) -> Iterator[Batch]:
    """Yield batches of so many rows, the last one perhaps shorter; most are views of a block's tensors."""

    def batches(run: Run) -> Iterator[Batch]:
        for start in range(run.start, run.stop, size):
            stop = min(start + size, run.stop)
            yield {name: tensor[start:stop] for name, tensor in run.columns.items()}

    return divided(runs(blocks, size, _joined), batches)


def _joined(parts: Sequence[Batch]) -> Batch:
    return {name: torch.cat([part[name] for part in parts]) for name in parts[0]}


def shuffle_tensors(
    blocks: Iterable[Block], capacity: int, rng: np.random.Generator
) -> Iterator[Block]:
    """Shuffle blocks of tensors as ``shuffle_pool`` shuffles arrays, in the same order.

    The numbers of their places in the buffer are shuffled; the tensors themselves are copied in
    and out where they live.

    Args:
        blocks: From :func:`transformed`.
        capacity: Rows in the buffer.
        rng: Draws the rows that leave.
    """
    buffer = _Buffer()
    places = (
        Block({"place": buffer.put(block)}, block.num_rows, block.ends_epoch) for block in blocks
    )
    for chosen in shuffle_pool(places, capacity, rng):
        if chosen.num_rows:
            columns = buffer.take(chosen.columns["place"])
            yield Block(columns, chosen.num_rows, chosen.ends_epoch)


class _Buffer:
    """Tensors of some rows, and which of them are free."""

    def __init__(self) -> None:
        self._tensors: Batch = {}
        self._free: npt.NDArray[np.int64] = np.empty(0, np.int64)
        self._size = 0

    def put(self, block: Block) -> npt.NDArray[np.int64]:
        """Copy the rows of a block and return their places."""
        count = block.num_rows
        if not count:
            return self._free[:0]
        if count > len(self._free):
            self._grow(count - len(self._free), block)
        places, self._free = self._free[:count], self._free[count:]
        for name, tensor in block.columns.items():
            if self._tensors[name].dtype != tensor.dtype:  # only ever wider
                self._tensors[name] = self._tensors[name].to(tensor.dtype)
            _put(self._tensors[name], places, tensor)
        return places

    def take(self, places: npt.NDArray[np.int64]) -> Batch:
        """Return the rows of places, which are free then."""
        self._free = np.concatenate([places, self._free])
        return {name: _take(tensor, places) for name, tensor in self._tensors.items()}

    def _grow(self, missing: int, block: Block) -> None:
        size = max(self._size + missing, self._size + self._size // 4)
        for name, tensor in block.columns.items():
            grown = tensor.new_empty((size, *tensor.shape[1:]))
            if self._size:
                grown[: self._size] = self._tensors[name]
            self._tensors[name] = grown
        self._free = np.concatenate([self._free, np.arange(self._size, size)])
        self._size = size


def _bits(tensor: torch.Tensor) -> torch.Tensor:
    """Return a tensor as integers of its size: neither torch nor NumPy indexes every other type."""
    return tensor.detach().view(_BITS.get(tensor.element_size(), tensor.dtype))


def _put(target: torch.Tensor, places: npt.NDArray[np.int64], source: torch.Tensor) -> None:
    """Do ``target[places] = source``."""
    # NumPy stays in this thread. Torch's threads wait for each other, long where cores are busy.
    if target.device.type == source.device.type == "cpu":
        _bits(target).numpy()[places] = _bits(source).numpy()
    else:
        _bits(target)[torch.from_numpy(places)] = _bits(source)


def _take(tensor: torch.Tensor, places: npt.NDArray[np.int64]) -> torch.Tensor:
    """Return ``tensor[places]``."""
    if tensor.device.type == "cpu":
        taken = torch.from_numpy(_bits(tensor).numpy().take(places, axis=0))
    else:
        taken = _bits(tensor)[torch.from_numpy(places)]
    return taken.view(tensor.dtype)
