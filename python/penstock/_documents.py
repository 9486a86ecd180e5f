"""Documents of tokens that stay on the disk, and batches of them in an order that depends on a seed
and the epoch alone."""

from __future__ import annotations

import bisect
import hashlib
import json
import os
import zlib
from pathlib import Path
from typing import Any, Iterator, Mapping, NamedTuple, Sequence

import numpy as np
import torch

from penstock import _core
from penstock._errors import PenstockError
from penstock._parts import PathLike

FORMAT = "penstock-documents"
MANIFEST = "manifest.json"
#: Targets that do not count.
_NOT_LEARNED = -100
_HEADER_BYTES = 1024
_MARKS = {(20240801, 7): "<u4", (20240520, 1): "<u2"}  # of llm.c
_COLUMNS = ("input_ids", "position_ids", "attention_mask", "labels", "targets")
_SUMMED = 16 << 20  # bytes of files that are summed when they are opened
_PART = 1 << 20  # of a file, to sum
_POOL = 64  # batches among which lengths are sorted


def token_file_header(tokens: int) -> bytes:
    """Before tokens of 32 bits, as llm.c has it."""
    return np.array([20240801, 7, tokens] + [0] * 253, "<i4").tobytes()


def _mapped(path: Path, kind: str, begin: int = 0) -> np.ndarray:
    try:
        size = path.stat().st_size - begin
    except OSError as error:
        raise PenstockError(f"cannot read {path}: {error.strerror}") from None
    width = np.dtype(kind).itemsize
    if size < width or size % width:
        raise PenstockError(f"{path}: expected numbers of {width} bytes each, found {size} bytes")
    return np.memmap(path, kind, "r", begin)


def _token_file(path: Path) -> np.ndarray:
    """A row of tokens: .npy, or .bin with llm.c's header or without (uint16, as nanoGPT has it)."""
    if path.suffix == ".npy":
        try:
            found = np.load(path, mmap_mode="r", allow_pickle=False)
        except (OSError, ValueError) as error:
            raise PenstockError(f"{path}: expected an array of NumPy: {error}") from None
        if found.ndim != 1 or found.dtype.kind not in "iu" or len(found) == 0:
            raise PenstockError(
                f"{path}: expected one row of whole numbers, found {found.dtype} of shape "
                f"{list(found.shape)}"
            )
        return found
    begin = _mapped(path, "u1")[:12].tobytes()
    *mark, count = np.frombuffer(begin, "<i4").tolist() if len(begin) == 12 else (0,)
    if tuple(mark) in _MARKS:
        found = _mapped(path, _MARKS[tuple(mark)], _HEADER_BYTES)
        if count != len(found):
            raise PenstockError(
                f"{path}: expected the {count} tokens that its header tells of, found {len(found)}"
            )
        return found
    return _mapped(path, "<u2")


class _Piece(NamedTuple):
    tokens: np.ndarray  # int64
    learned: np.ndarray  # bool
    positions: np.ndarray  # each document's own, from 0


class _Order(NamedTuple):
    """Of an epoch: row r of all is `pieces[ends[r - 1]:ends[r]]`, batch b is
    `rows[bounds[b - 1]:bounds[b]]`."""

    pieces: np.ndarray
    ends: np.ndarray
    rows: np.ndarray
    bounds: np.ndarray


class Documents:
    """A folder that `write` has made. Its files are mapped, and read where batches need them.

    Documents that are longer than a sequence may be become pieces of it, of which each begins with
    the last token of the one before: so each token is learned once.
    """

    def __init__(self, folder: PathLike) -> None:
        """Raises PenstockError: it is no such folder, a file has another size, or, in a folder of
        at most 16 MiB, `check` finds a damage."""
        self.folder = Path(folder)
        path = self.folder / MANIFEST
        try:
            text = path.read_text(encoding="utf-8")
            self.manifest: dict[str, Any] = json.loads(text)
            if self.manifest["format"] != FORMAT or self.manifest["version"] != 1:
                raise ValueError(
                    f"found {self.manifest['format']!r:.60} of version {self.manifest['version']}"
                )
            shards = [(str(row["name"]), int(row["documents"]), int(row["tokens"]))
                      for row in self.manifest["shards"]]  # fmt: skip
            self.pad = int(self.manifest["tokenizer"]["pad"])
            is_wide = int(self.manifest["tokenizer"]["size"]) > 1 << 16
            if not shards:
                raise ValueError("it has no shards")
        except (OSError, ValueError, KeyError, TypeError) as error:
            raise PenstockError(
                f"{path}: expected the manifest of documents of version 1, as python -m "
                f"penstock.data writes it: {error}"
            ) from None
        what = json.dumps([self.manifest["tokenizer"], self.manifest["shards"]], sort_keys=True)
        self.name = f"documents {hashlib.sha256(what.encode()).hexdigest()[:16]}"
        self._files = []
        self._firsts = [0]
        lengths, begins = [], []
        for name, documents, tokens in shards:
            files = (
                _mapped(self.folder / f"{name}.bin", "<u4" if is_wide else "<u2",
                        _HEADER_BYTES if is_wide else 0),
                _mapped(self.folder / f"{name}.learned", "u1"),
                _mapped(self.folder / f"{name}.begins", "<u8"),
            )  # fmt: skip
            bounds = files[2].astype(np.int64)
            own = np.diff(bounds)
            fits = len(own) == documents and bounds[0] == 0 and bounds[-1] == tokens
            if not fits or own.min() < 1 or {len(files[0]), len(files[1])} != {tokens}:
                raise PenstockError(
                    f"{self.folder / name}: the files are not those of the manifest, which has "
                    f"{documents} documents of {tokens} tokens: write the folder anew"
                )
            self._files.append(files)
            self._firsts.append(self._firsts[-1] + documents)
            lengths.append(own)
            begins.append(bounds[:-1])
        self.lengths = np.concatenate(lengths)  # of the documents, in tokens
        self._begins = np.concatenate(begins)
        if sum(one.nbytes for files in self._files for one in files) <= _SUMMED:
            self.check()

    def check(self) -> None:
        """Reads all of the files. Raises PenstockError: one is not as it was written."""
        for row, files in zip(self.manifest["shards"], self._files):
            crc = 0
            for one in files:
                for begin in range(0, len(one), _PART):
                    crc = zlib.crc32(one[begin : begin + _PART], crc)
            if crc != row.get("crc32", crc):
                raise PenstockError(
                    f"{self.folder / row['name']}: the files are damaged: their sum is {crc}, that "
                    f"of the manifest {row['crc32']}: write the folder anew"
                )

    def __len__(self) -> int:
        return len(self.lengths)

    def __getitem__(self, document: int) -> tuple[np.ndarray, np.ndarray]:
        """Its tokens, and whether each is learned."""
        if not 0 <= document < len(self):
            raise IndexError(f"document {document} of {len(self)}")
        return self._part(document, 0, int(self.lengths[document]))

    def packed(self, length: int, **options: Any) -> "Loader":
        """Rows of `length` tokens, into which documents are packed, each with positions of its own.

        :param length: of a row; what is left of one is filled
        :param batch_size: rows of a batch
        :param seed: of the order of documents and rows, which is another one in each epoch
        :param columns: of a batch: "input_ids", "position_ids" (from 0 in each document), "labels"
            (-100: not learned) and "targets" (labels shifted by one, for models that do not shift
            them)
        :param drop_last: leave out the last batch of an epoch where it has fewer rows, and an epoch
            that has no other
        """
        columns = tuple(options.pop("columns", ("input_ids", "position_ids", "labels")))
        if "attention_mask" in columns:
            raise ValueError(
                "columns: rows of several documents have no attention_mask: models take the mask "
                "of each document from position_ids, and those of transformers do so only where "
                "attention_mask is not given"
            )
        if "position_ids" not in columns:
            raise ValueError("columns: position_ids say where a document begins in its row")
        return Loader(self, "packed", length, columns, **options)

    def padded(self, longest: int | None = None, **options: Any) -> "Loader":
        """Batches of documents of nearly the same length, padded to that of the longest, for models
        exported with ``any_length``.

        :param longest: longer documents become pieces; None: that of the longest
        :param batch_size: documents of a batch
        :param seed: of the order, which is another one in each epoch
        :param columns: as those of `packed`, and "attention_mask" (0: padding)
        :param multiple: lengths are rounded up to such a number
        :param drop_last: leave out the last batch of an epoch where it has fewer documents
        """
        columns = tuple(options.pop("columns", ("input_ids", "attention_mask", "labels")))
        longest = int(self.lengths.max()) if longest is None else longest
        return Loader(self, "padded", longest, columns, **options)

    def _part(self, document: int, begin: int, count: int) -> tuple[np.ndarray, np.ndarray]:
        shard = bisect.bisect_right(self._firsts, document) - 1
        tokens, learned, _ = self._files[shard]
        first = int(self._begins[document]) + begin
        return tokens[first : first + count].astype(np.int64), learned[first : first + count] != 0

    def pieces(self, longest: int) -> "_Pieces":
        return _Pieces(self, longest)


class _Pieces:
    """Documents, and pieces of those that are longer than `longest`."""

    def __init__(self, documents: Documents, longest: int) -> None:
        counts = np.maximum(-(-(documents.lengths - 1) // (longest - 1)), 0)
        self._documents = documents
        self._of = np.repeat(np.arange(len(counts)), counts)
        first = np.repeat(np.cumsum(counts) - counts, counts)
        self._begins = (np.arange(len(self._of)) - first) * (longest - 1)
        self.lengths = np.minimum(documents.lengths[self._of] - self._begins, longest)
        # Of a document in one piece something is learned; of one of several perhaps not of each.
        several = np.flatnonzero(counts[self._of] > 1)
        empty = [k for k in several.tolist() if not self._part(k)[1][1:].any()]
        if empty:
            self._of, self._begins, self.lengths = (
                np.delete(one, empty) for one in (self._of, self._begins, self.lengths)
            )

    def _part(self, k: int) -> tuple[np.ndarray, np.ndarray]:
        return self._documents._part(int(self._of[k]), int(self._begins[k]), int(self.lengths[k]))

    def __len__(self) -> int:
        return len(self.lengths)

    def __getitem__(self, k: int) -> _Piece:
        tokens, learned = self._part(k)
        learned[0] = False  # nothing comes before it
        return _Piece(tokens, learned, np.arange(len(tokens)))


class Tokens:
    """Rows of tokens in files of any size, mapped from the disk: .npy, or .bin of nanoGPT (uint16)
    and llm.c. Each file is one row, and all of it is learned.

        loader = penstock.data.Tokens(["a.bin", "b.bin"], end=50256).windows(1024, batch_size=8)
    """

    def __init__(self, files: PathLike | Sequence[PathLike], end: int | None = None) -> None:
        """`end`: the token that ends a document; None: each file is one document. Raises
        PenstockError."""
        paths = [files] if isinstance(files, (str, os.PathLike)) else list(files)
        if not paths:
            raise ValueError("files: expected at least one, found none")
        self._rows = [_token_file(Path(path)) for path in paths]
        self._end = end
        self.pad = 0 if end is None else end
        sizes = ", ".join(f"{Path(path).name} of {len(row)} tokens"
                          for path, row in zip(paths, self._rows))  # fmt: skip
        self.name = f"{sizes}, end {end}"

    def __len__(self) -> int:
        """Tokens in all."""
        return sum(map(len, self._rows))

    def windows(self, length: int, **options: Any) -> "Loader":
        """Windows of `length` tokens, of which each begins with the last token of the one before;
        options as of `Documents.packed`. The last one of a file is filled, and one without a
        token to learn left out."""
        columns = tuple(options.pop("columns", ("input_ids", "position_ids", "labels")))
        if self._end is not None and "position_ids" not in columns:
            raise ValueError("columns: position_ids say where a document begins in its row")
        return Loader(self, "windows", length, columns, **options)

    def pieces(self, longest: int) -> "_Windows":
        return _Windows(self._rows, self._end, longest)


class _Windows:
    def __init__(self, rows: Sequence[np.ndarray], end: int | None, length: int) -> None:
        self._rows, self._end, self._length = rows, end, length
        counts = [-(-(len(row) - 1) // (length - 1)) for row in rows]
        self._firsts = np.cumsum([0, *counts]).tolist()
        # Nothing is learned in a window whose tokens before the last all end documents.
        empty = []
        for row, first in zip(rows, self._firsts) if end is not None else ():
            for k in np.flatnonzero(row[: -1 : length - 1] == end).tolist():
                if (row[:-1][k * (length - 1) : (k + 1) * (length - 1)] == end).all():
                    empty.append(first + k)
        self._gaps = [k - before for before, k in enumerate(empty)]

    def __len__(self) -> int:
        return self._firsts[-1] - len(self._gaps)

    def __getitem__(self, k: int) -> _Piece:
        k += bisect.bisect_right(self._gaps, k)
        row = bisect.bisect_right(self._firsts, k) - 1
        begin = (k - self._firsts[row]) * (self._length - 1)
        tokens = self._rows[row][begin : begin + self._length].astype(np.int64)
        learned = np.ones(len(tokens), bool)
        learned[0] = False
        places = np.arange(len(tokens))
        if self._end is None:
            return _Piece(tokens, learned, places)
        begins = np.zeros(len(tokens), np.int64)
        after = np.flatnonzero(tokens[:-1] == self._end) + 1
        learned[after] = False
        begins[after] = after
        return _Piece(tokens, learned, places - np.maximum.accumulate(begins))


def _pack(order: np.ndarray, lengths: np.ndarray, room: int) -> tuple[np.ndarray, np.ndarray]:
    """Puts pieces, in this order, into rows: each into the fullest one that has room. Returns the
    pieces row by row, and where each row ends."""
    rows: list[list[int]] = []
    spaces: list[int] = []  # free places for which there are rows, rising
    rows_of: dict[int, list[int]] = {}
    for piece, length in zip(order.tolist(), lengths[order].tolist()):
        place = bisect.bisect_left(spaces, length)
        if place == len(spaces):
            row, left = len(rows), room - length
            rows.append([piece])
        else:
            space = spaces[place]
            row, left = rows_of[space].pop(), space - length
            rows[row].append(piece)
            if not rows_of[space]:
                del spaces[place], rows_of[space]
        if left >= 2:  # the shortest piece
            if left not in rows_of:
                bisect.insort(spaces, left)
                rows_of[left] = []
            rows_of[left].append(row)
    return np.array([piece for row in rows for piece in row]), np.cumsum([len(row) for row in rows])


class Loader:
    """Batches of an epoch, then of the next one, in dicts by name. `Trainer.fit` takes it, and
    keeps in checkpoints where it is: iterating goes on there. The order depends on the seed and the
    epoch alone."""

    def __init__(
        self, source: Any, kind: str, length: int, columns: Sequence[str], *, batch_size: int,
        seed: int = 1, drop_last: bool = False, multiple: int = 8,
    ) -> None:  # fmt: skip
        """Made by `Documents` and `Tokens`."""
        for name, value, least in (("length", length, 2), ("batch_size", batch_size, 1),
                                   ("seed", seed, 0), ("multiple", multiple, 1)):  # fmt: skip
            if not isinstance(value, int) or value < least:
                raise ValueError(f"{name}: expected at least {least}, found {value!r:.60}")
        unknown = [name for name in columns if name not in _COLUMNS]
        if unknown or "input_ids" not in columns:
            raise ValueError(
                f"columns: expected input_ids and others of {', '.join(_COLUMNS)}, found "
                f"{', '.join(map(str, columns))}"
            )
        self._kind, self._length, self._columns = kind, length, tuple(columns)
        self._batch_size, self._seed, self._drop_last = batch_size, seed, drop_last
        self._multiple = multiple
        self._pad = source.pad
        self._pieces = source.pieces(length)
        if len(self._pieces) == 0:
            raise PenstockError(f"{source.name}: expected at least 2 tokens to learn from")
        self._what = (
            f"{source.name}; {kind}, length {length}, batches of {batch_size}, seed {seed}"
            + (f", multiples of {multiple}" if kind == "padded" else "")
            + (", without the last batch" if drop_last else "")
        )
        self._epoch, self._batch = 0, 0
        self._made: tuple[int, _Order] | None = None
        if len(self) == 0:
            raise PenstockError(f"drop_last: there are fewer rows than a batch has ({batch_size})")

    def _with_batches(self, epoch: int) -> int:
        """This epoch, or the next one that has a batch: rows are packed anew in each, so that one
        may have fewer than drop_last asks for."""
        if self._kind == "packed" and self._drop_last:
            while len(self._order(epoch).bounds) == 0:
                epoch += 1
        return epoch

    def __len__(self) -> int:
        """Batches that are left of this epoch."""
        return len(self._order(self._epoch).bounds) - self._batch

    def __iter__(self) -> Iterator[dict[str, torch.Tensor]]:
        order = self._order(self._epoch)
        number = self._batch
        while number < len(order.bounds):
            made = self._make(order, number)
            number += 1
            is_last = number == len(order.bounds)
            self._batch = 0 if is_last else number
            if is_last:
                self._epoch = self._with_batches(self._epoch + 1)
            yield made

    @property
    def is_between_epochs(self) -> bool:
        """Whether the next batch is the first of an epoch."""
        return self._batch == 0

    def example(self) -> dict[str, torch.Tensor]:
        """The first batch, of which at most two rows: for `penstock.Trainer` and `export`."""
        return {name: one[:2].clone() for name, one in self._make(self._order(0), 0).items()}

    def state_dict(self) -> dict[str, Any]:
        """Where it is."""
        return {"epoch": self._epoch, "batch": self._batch, "data": self._what}

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        """Goes on there. Raises PenstockError where the state is of other data or of another order,
        which has no such place."""
        try:
            epoch, batch, what = int(state["epoch"]), int(state["batch"]), str(state["data"])
        except (KeyError, TypeError, ValueError):
            raise PenstockError(
                f"expected the state of such a loader, found {state!r:.80}"
            ) from None
        if what != self._what:
            raise PenstockError(
                f"the place is one in other data, or in another order: expected {self._what}; "
                f"found {what}"
            )
        if epoch >= 0 and batch == 0:
            epoch = self._with_batches(epoch)
        if epoch < 0 or not 0 <= batch < len(self._order(epoch).bounds):
            raise PenstockError(f"there is no batch {batch} in epoch {epoch}")
        self._epoch, self._batch = epoch, batch

    def _order(self, epoch: int) -> _Order:
        if self._made is None or self._made[0] != epoch:
            self._made = (epoch, self._new_order(epoch))
        return self._made[1]

    def _shuffled(self, count: int, epoch: int, what: int = 0) -> np.ndarray:
        return _core.epoch_order(count, self._seed, 2 * epoch + what).numpy()

    def _new_order(self, epoch: int) -> _Order:
        size = self._batch_size
        pieces = self._shuffled(len(self._pieces), epoch)
        if self._kind == "packed":
            pieces, ends = _pack(pieces, self._pieces.lengths, self._length)
            rows = self._shuffled(len(ends), epoch, 1)
        else:
            ends = np.arange(1, len(pieces) + 1)
            rows = np.arange(len(pieces))
        whole = len(rows) // size
        if self._kind == "padded":
            # Sorted among neighbours of the order; whole batches then change places.
            for begin in range(0, len(rows), _POOL * size):
                pool = rows[begin : begin + _POOL * size]
                pool[:] = pool[np.argsort(self._pieces.lengths[pieces[pool]], kind="stable")]
            batches = rows[: whole * size].reshape(whole, size)
            rows[: whole * size] = batches[self._shuffled(whole, epoch, 1)].ravel()
        bounds = np.arange(1, whole + 1) * size
        if whole * size < len(rows) and not self._drop_last:
            bounds = np.append(bounds, len(rows))
        return _Order(pieces, ends, rows, bounds)

    def _make(self, order: _Order, batch: int) -> dict[str, torch.Tensor]:
        first = order.bounds[batch - 1] if batch else 0
        rows = [
            [self._pieces[int(k)]
             for k in order.pieces[order.ends[row - 1] if row else 0 : order.ends[row]]]
            for row in order.rows[first : order.bounds[batch]]
        ]  # fmt: skip
        length = self._length
        if self._kind == "padded":
            longest = max(len(row[0].tokens) for row in rows)
            length = min(-(-longest // self._multiple) * self._multiple, length)
        shape = (len(rows), length)
        tokens, labels = np.full(shape, self._pad), np.full(shape, _NOT_LEARNED)
        positions, mask = np.zeros(shape, np.int64), np.zeros(shape, np.int64)
        for r, row in enumerate(rows):
            at = 0
            for piece in row:
                to = at + len(piece.tokens)
                tokens[r, at:to], positions[r, at:to] = piece.tokens, piece.positions
                labels[r, at:to] = np.where(piece.learned, piece.tokens, _NOT_LEARNED)
                mask[r, at:to] = 1
                at = to
            # What fills the row is a document of its own, which nobody looks at.
            positions[r, at:] = np.arange(length - at)
        made = {"input_ids": tokens, "position_ids": positions, "attention_mask": mask,
                "labels": labels}  # fmt: skip
        if "targets" in self._columns:
            made["targets"] = np.pad(labels[:, 1:], ((0, 0), (0, 1)), constant_values=_NOT_LEARNED)
        return {name: torch.from_numpy(made[name]) for name in self._columns}
