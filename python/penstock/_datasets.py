"""Data sets of torch.utils.data and of the package datasets as loaders of batches."""

from __future__ import annotations

from typing import Any, Iterator, Mapping, Sequence

import torch
from torch.utils.data import DataLoader, Dataset, IterableDataset, default_collate

from penstock import _core


def is_dataset(data: Any) -> bool:
    """Samples one by one rather than batches."""
    return isinstance(data, Dataset) or _is_of_datasets(data)


def _is_of_datasets(data: Any) -> bool:
    kind = type(data)
    return kind.__module__.split(".")[0] == "datasets" and kind.__name__ in (
        "Dataset", "IterableDataset"
    )  # fmt: skip


def has_length(data: Any) -> bool:
    return not isinstance(data, IterableDataset) and hasattr(data, "__getitem__")


def loader_of(data: Any, batch_size: int, seed: int, shuffle: bool, drop_last: bool) -> Any:
    """Of a data set. Those that give their samples one after another (streams) come in their own
    order, and cannot say where they are."""
    if not has_length(data):
        return DataLoader(_Rows(data), batch_size=batch_size, collate_fn=collate,
                          drop_last=drop_last)  # fmt: skip
    if len(data) == 0:
        raise ValueError(f"data: {type(data).__name__} is empty")
    return DatasetLoader(data, batch_size, seed, shuffle, drop_last)


class _Rows(IterableDataset):
    """What is iterable, as a data set that a DataLoader takes for one."""

    def __init__(self, rows: Any) -> None:
        self.rows = rows

    def __iter__(self) -> Iterator[Any]:
        return iter(self.rows)


def collate(rows: Sequence[Any]) -> Any:
    """As default_collate, with lists of numbers as tensors."""
    return default_collate([_with_tensors(row) for row in rows])


def _with_tensors(row: Any) -> Any:
    if isinstance(row, Mapping):
        return {name: _with_tensors(value) for name, value in row.items()}
    if isinstance(row, list) and row and isinstance(row[0], (int, float, list)):
        return torch.tensor(row)
    return row


class DatasetLoader:
    """Batches of a data set with a length, in an order that depends on the seed and the epoch
    alone, as that of tensors. Says where it is."""

    def __init__(
        self, dataset: Any, batch_size: int, seed: int, shuffle: bool, drop_last: bool
    ) -> None:
        self.dataset = dataset
        self.batch_size = batch_size
        self.epoch = 0
        self._batch = 0
        self._seed, self._shuffle, self._drop_last = seed, shuffle, drop_last
        if self._batches() == 0:
            raise ValueError(
                f"drop_last: the {len(dataset)} samples do not fill a step of {batch_size}"
            )

    def _batches(self) -> int:
        whole, rest = divmod(len(self.dataset), self.batch_size)
        return whole + (rest > 0 and not self._drop_last)

    def __len__(self) -> int:
        """That are left of the epoch."""
        return self._batches() - self._batch

    def __iter__(self) -> Iterator[Any]:
        count = len(self.dataset)
        order: list[int] = list(range(count))
        if self._shuffle:
            order = _core.epoch_order(count, self._seed, self.epoch).tolist()
        number, total = self._batch, self._batches()
        while number < total:
            made = self._make(order[number * self.batch_size : (number + 1) * self.batch_size])
            number += 1
            self._batch = number % total
            self.epoch += number == total
            yield made

    def _make(self, places: list[int]) -> Any:
        many = getattr(self.dataset, "__getitems__", None)
        if callable(many):
            rows = many(places)
        else:
            rows = [self.dataset[place] for place in places]
        try:
            return collate(rows)
        except RuntimeError as error:
            raise _core.PenstockError(
                f"{type(self.dataset).__name__}: the samples {places[:3]}... make no batch: "
                f"{error}; a DataLoader with a collate_fn can pad them"
            ) from None

    @property
    def is_between_epochs(self) -> bool:
        return self._batch == 0

    def begin_anew(self) -> None:
        self._batch = 0

    def is_like(self, other: Any) -> bool:
        """Of the same samples in the same order."""
        return isinstance(other, DatasetLoader) and other._what() == self._what()

    def _what(self) -> str:
        order = f"shuffled by the seed {self._seed}" if self._shuffle else "in their own order"
        return f"{len(self.dataset)} samples in batches of {self.batch_size}, {order}"

    def state_dict(self) -> dict[str, Any]:
        return {"epoch": self.epoch, "batch": self._batch, "data": self._what(),
                "seed": self._seed}  # fmt: skip

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        try:
            epoch, batch, what = int(state["epoch"]), int(state["batch"]), str(state["data"])
            seed = int(state["seed"])
        except (KeyError, TypeError, ValueError):
            raise _core.PenstockError(
                f"expected the place of a data set, found {state!r:.80}"
            ) from None
        before, self._seed = self._seed, seed
        if what != self._what() or not 0 <= batch < self._batches() or epoch < 0:
            self._seed = before
            raise _core.PenstockError(
                f"the place is one in other data, or in another order: expected {self._what()}; "
                f"found {what}"
            )
        self.epoch, self._batch = epoch, batch
