"""Texts, prompts with answers, and conversations as tokens on the disk, and batches of them.

    python -m penstock.data chat.jsonl --tokenizer FOLDER -o tokens

writes a folder of documents; the package tokenizers reads the `tokenizer.json`. In Python:

    penstock.data.write("chat.jsonl", "FOLDER", "tokens")
    loader = penstock.data.Documents("tokens").packed(length=1024, batch_size=8)
    trainer = penstock.Trainer(model, loader.example(), batch_size=8)
    trainer.fit(loader, epochs=3, checkpoint="run", save_every=100)

Tokens stay on the disk, which maps them into memory. What is learned of a document is its answers,
or all of a text.
"""

from __future__ import annotations

import argparse
import hashlib
import itertools
import json
import os
import sys
import zlib
from pathlib import Path
from typing import Any, Iterator, Sequence

import numpy as np

from penstock._chat import ChatTemplate, find_template, named_tokens, tokenizer_config
from penstock._documents import FORMAT, MANIFEST, Documents, Loader, Tokens, token_file_header
from penstock._errors import PenstockError
from penstock._parts import PathLike
from penstock._rows import Row, rows_in
from penstock.text import _SPECIAL, _load

__all__ = ["Documents", "Loader", "Tokens", "write"]

_CHUNK = 1000  # rows at a time
_SHARD_TOKENS = 1 << 26
_PART = f"{MANIFEST}.part"


class _Encoder:
    """Rows as tokens, and which of these are learned."""

    def __init__(
        self, tokenizer: PathLike, template: PathLike | None, chat: bool, end: str | None
    ) -> None:
        path = Path(tokenizer)
        self.path = path / "tokenizer.json" if path.is_dir() else path
        self.tokenizer = _load(self.path)
        # What a file says of the lengths it was made for would cut off documents.
        self.tokenizer.no_truncation()
        self.tokenizer.no_padding()
        config = tokenizer_config(self.path)
        special = named_tokens(config)
        self.template: ChatTemplate | None = find_template(
            self.path, special, None if template is None else Path(template)
        )
        self.chat = chat
        names = (end,) if end is not None else (special.get("eos_token"), *_SPECIAL["end"])
        known = [name for name in names if name is not None and self._number(name) is not None]
        if not known:
            raise PenstockError(
                f"{self.path}: no token ends a document: found neither 'eos_token' in "
                f"tokenizer_config.json nor {', '.join(_SPECIAL['end'])}; name it with end="
                if end is None
                else f"{self.path}: the tokenizer has no token '{end}'"
            )
        self.end = self._number(known[0])
        pad = special.get("pad_token")
        number = None if pad is None else self._number(pad)
        self.pad = self.end if number is None else number
        added = self.tokenizer.get_added_tokens_decoder().values()
        self.ends = [one.content for one in added if one.special] or [known[0]]
        # Numbers may have gaps: of few tokens one may be large.
        self.size = 1 + max(self.tokenizer.get_vocab(with_added_tokens=True).values())
        self.inside = 0  # answers that begin inside of a token

    def _number(self, name: str) -> int | None:
        return self.tokenizer.token_to_id(name)

    def _text(self, row: Row) -> tuple[str, list[tuple[int, int]]]:
        """The text of a row, and where in it is what is learned."""
        if row.text is not None:
            return row.text, [(0, len(row.text))]
        messages = row.messages
        if messages is None and not self.chat:
            assert row.prompt is not None
            text = row.prompt + row.answer
            return text, [(len(row.prompt), len(text))]
        if messages is None:
            messages = [{"role": "user", "content": row.prompt},
                        {"role": "assistant", "content": row.answer}]  # fmt: skip
        if self.template is None:
            raise PenstockError(
                f"{row.place}: conversations need a chat template: {self.path.parent} has neither "
                "chat_template.jinja nor 'chat_template' in tokenizer_config.json; give a file of "
                "one with template="
            )
        return self.template.spans(messages, row.tools, row.place, self.ends)

    def encode(self, rows: Sequence[Row]) -> Iterator[tuple[np.ndarray, np.ndarray]]:
        """Of each row the tokens, and whether each is learned."""
        texts = [self._text(row) for row in rows]
        is_plain = [row.messages is None and not (self.chat and row.text is None) for row in rows]
        encoded: list[Any] = [None] * len(rows)
        for plain in (True, False):  # a template writes what begins and ends a document itself
            places = [k for k, one in enumerate(is_plain) if one == plain]
            found = self.tokenizer.encode_batch(
                [texts[k][0] for k in places], add_special_tokens=plain
            )
            for k, one in zip(places, found):
                encoded[k] = one
        for one, (_, spans), plain in zip(encoded, texts, is_plain):
            ids = np.asarray(one.ids, np.int64)
            learned = self._learned(one, spans)
            if plain and (len(ids) == 0 or ids[-1] != self.end):
                ids, learned = np.append(ids, self.end), np.append(learned, True)
            elif plain:
                learned[-1] = True
            yield ids, learned

    def _learned(self, encoded: Any, spans: Sequence[tuple[int, int]]) -> np.ndarray:
        """Whether a token lies in one of the spans, wholly."""
        if not spans or not len(encoded.ids):
            return np.zeros(len(encoded.ids), bool)
        offsets = np.asarray(encoded.offsets, np.int64)
        begins, ends = np.asarray(spans, np.int64).T
        place = np.searchsorted(begins, offsets[:, 0], "right") - 1
        inside = (place >= 0) & (offsets[:, 1] <= ends[place])
        starts = (offsets[:, :1] < begins) & (begins < offsets[:, 1:])
        self.inside += int(starts.any(0).sum())
        return inside & (np.asarray(encoded.special_tokens_mask) == 0)


class _Shards:
    """The files of a folder, shard by shard."""

    def __init__(self, folder: Path, vocabulary: int, most: int) -> None:
        self._folder = folder
        self._type = np.dtype("<u2" if vocabulary <= 1 << 16 else "<u4")
        self._most = most
        self._parts: tuple[list[np.ndarray], list[np.ndarray]] = ([], [])
        self._tokens = 0
        self.rows: list[dict[str, int | str]] = []
        self.written: list[Path] = []

    def add(self, ids: np.ndarray, learned: np.ndarray) -> None:
        if self._tokens and self._tokens + len(ids) > self._most:
            self.close()
        self._parts[0].append(ids.astype(self._type))
        self._parts[1].append(learned.astype(np.uint8))
        self._tokens += len(ids)

    def close(self) -> None:
        """Writes what there is as one shard."""
        if not self._tokens:
            return
        name = f"{len(self.rows):05}"
        tokens, learned = self._parts
        begins = np.cumsum([0, *map(len, tokens)], dtype="<u8")
        header = token_file_header(self._tokens) if self._type.itemsize == 4 else b""
        crc = 0
        for kind, head, parts in (("bin", header, tokens), ("learned", b"", learned),
                                  ("begins", b"", [begins])):  # fmt: skip
            crc = self._write(f"{name}.{kind}", head, parts, crc)
        self.rows.append({
            "name": name, "documents": len(tokens), "tokens": self._tokens,
            "learned": int(sum(int(one.sum()) for one in learned)),
            "longest": max(map(len, tokens)), "crc32": crc,
        })  # fmt: skip
        self._parts, self._tokens = ([], []), 0

    def _write(self, name: str, header: bytes, parts: Sequence[np.ndarray], crc: int) -> int:
        path = self._folder / name
        self.written.append(path)
        with open(path, "wb") as out:
            out.write(header)
            for part in parts:
                content = part.tobytes()
                crc = zlib.crc32(content, crc)
                out.write(content)
        return crc


def _is_ours(path: Path) -> bool:
    is_shard = path.suffix in (".bin", ".learned", ".begins") and path.stem.isdigit()
    return is_shard or path.name == _PART


def _open_folder(folder: Path) -> None:
    """Empties a folder of documents, also of a run that was killed, or makes a new one. Raises
    PenstockError."""
    if folder.exists() and (not folder.is_dir() or any(folder.iterdir())):
        try:
            is_ours = json.loads((folder / MANIFEST).read_text())["format"] == FORMAT
        except (OSError, ValueError, KeyError, TypeError):
            is_ours = (folder / _PART).is_file() and all(map(_is_ours, folder.iterdir()))
        if not is_ours:
            raise PenstockError(f"{folder} holds other files than documents: name a new folder")
    folder.mkdir(parents=True, exist_ok=True)
    (folder / _PART).touch()  # says whose the folder is, until it has a manifest
    (folder / MANIFEST).unlink(missing_ok=True)
    for path in filter(_is_ours, folder.iterdir()):
        if path.name != _PART:
            path.unlink()


def write(
    rows: Any,
    tokenizer: PathLike,
    output: PathLike,
    *,
    template: PathLike | None = None,
    chat: bool = False,
    end: str | None = None,
    shard_tokens: int = _SHARD_TOKENS,
) -> dict[str, Any]:
    """Writes a folder of documents, which `Documents` reads, and returns its manifest.

    :param rows: a file of JSON lines, a file or a folder of Parquet or Arrow (by the package
        datasets), a list of such files, or any iterable of dicts, such as a data set of datasets.
        A row has `text`; or `prompt` and `completion` (also `answer`, `response`, `output`); or
        `messages`, each with `role` and `content`. Other keys are left alone
    :param tokenizer: a folder with `tokenizer.json` and `tokenizer_config.json`, or the first alone
    :param output: the folder; documents that are there already go
    :param template: a file with a chat template, instead of the tokenizer's own
    :param chat: prompts and answers are messages of a conversation, too
    :param end: the token that ends a document; None: the tokenizer's `eos_token`, or a usual name
    :param shard_tokens: a file has so many tokens at most, unless one document has more
    :raises PenstockError: with file and line, a row that is none; a template that is none, or that
        does not write what is said; nothing is left in the folder then

    Learned are the whole text, the answer to a prompt, or what `assistant` says in a conversation,
    each with the token that ends it. Documents without anything to learn are left out: the manifest
    counts them.
    """
    if shard_tokens < 1:
        raise ValueError(f"shard_tokens: expected at least 1, found {shard_tokens}")
    encoder = _Encoder(tokenizer, template, chat, end)
    sources = list(rows) if isinstance(rows, (list, tuple)) and rows and all(
        isinstance(one, (str, os.PathLike)) for one in rows) else [rows]  # fmt: skip
    folder = Path(output)
    _open_folder(folder)
    shards = _Shards(folder, encoder.size, shard_tokens)
    left_out = 0
    try:
        found = itertools.chain.from_iterable(map(rows_in, sources))
        while chunk := list(itertools.islice(found, _CHUNK)):
            for ids, learned in encoder.encode(chunk):
                learned[:1] = False  # nothing comes before it
                if learned.any():
                    shards.add(ids, learned)
                else:
                    left_out += 1
        shards.close()
        if not shards.rows:
            raise PenstockError(
                f"none of the {left_out} documents has anything to learn: expected answers, or "
                "texts of at least one token"
            )
        manifest = _manifest(encoder, shards, sources, left_out)
        (folder / _PART).write_text(json.dumps(manifest, indent=1) + "\n", encoding="utf-8")
        (folder / _PART).replace(folder / MANIFEST)
    except BaseException:
        for path in (*shards.written, folder / _PART):
            path.unlink(missing_ok=True)
        raise
    return manifest


def _manifest(
    encoder: _Encoder, shards: _Shards, sources: Sequence[Any], left_out: int
) -> dict[str, Any]:
    total = {key: sum(int(row[key]) for row in shards.rows)
             for key in ("documents", "tokens", "learned")}  # fmt: skip
    return {
        "format": FORMAT,
        "version": 1,
        "tokenizer": {
            "size": encoder.size,
            "end": encoder.end,
            "pad": encoder.pad,
            "sha256": hashlib.sha256(encoder.path.read_bytes()).hexdigest(),
        },
        **total,
        "longest": max(int(row["longest"]) for row in shards.rows),
        "left_out": left_out,
        "begin_inside_a_token": encoder.inside,
        "sources": [os.fspath(one) if isinstance(one, (str, os.PathLike)) else "rows of a program"
                    for one in sources],
        "shards": shards.rows,
    }  # fmt: skip


def _summary(manifest: dict[str, Any], output: str) -> str:
    lines = [
        f"{output}: {manifest['documents']} documents of {manifest['tokens']} tokens, of which "
        f"{manifest['learned']} are learned; the longest has {manifest['longest']}"
    ]
    if manifest["left_out"]:
        lines.append(f"left out: {manifest['left_out']} documents without anything to learn")
    if manifest["begin_inside_a_token"]:
        lines.append(
            f"{manifest['begin_inside_a_token']} answers begin inside of a token, which is not "
            "learned"
        )
    return "\n".join(lines)


def main(arguments: Sequence[str] | None = None) -> int:
    """The command `python -m penstock.data`."""
    parser = argparse.ArgumentParser(
        prog="python -m penstock.data",
        description=__doc__,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.add_argument("rows", nargs="+", metavar="FILE",
                        help="JSON lines, or files or folders of Parquet or Arrow")  # fmt: skip
    parser.add_argument("--tokenizer", required=True,
                        help="a folder with a tokenizer.json, or that file")  # fmt: skip
    parser.add_argument("-o", "--output", required=True, help="folder to write")
    parser.add_argument("--template", help="a file with a chat template, instead of its own")
    parser.add_argument("--chat", action="store_true",
                        help="prompts and answers are written by the template, too")  # fmt: skip
    parser.add_argument("--end", help="the token that ends a document")
    options = parser.parse_args(arguments)
    try:
        manifest = write(options.rows, options.tokenizer, options.output,
                         template=options.template, chat=options.chat, end=options.end)  # fmt: skip
    except (PenstockError, OSError) as error:
        print(f"penstock.data: {error}", file=sys.stderr)
        return 2
    print(_summary(manifest, options.output))
    return 0


if __name__ == "__main__":
    sys.exit(main())
