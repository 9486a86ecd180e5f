"""Texts as folders of tokens, by vocabularies of Hugging Face (`tokenizer.json`).

`penstock data` makes vocabularies of its own; this module takes one that is there, with the package
`tokenizers`, and writes the same kind of folder for `penstock train`.

    python -m penstock.text --tokenizer tokenizer.json --train train.txt --test test.txt -o folder

Files have a sentence a line, and stay as they are: nothing is left out.
"""

from __future__ import annotations

import argparse
import array
import json
import os
import shutil
import sys
import zlib
from pathlib import Path
from typing import Any, Callable, Iterator, Mapping, Optional, Sequence, Tuple, Union

from penstock._errors import PenstockError
from penstock._parts import PathLike

#: One file, or a source and a target.
Files = Union[PathLike, Tuple[PathLike, PathLike]]

#: Names of tokens that are no text, in the order in which they are looked for.
_SPECIAL = {
    "end": ("</s>", "<|end_of_text|>", "<|endoftext|>", "<eos>", "[SEP]", "[EOS]"),
    "begin": ("<s>", "<|begin_of_text|>", "<bos>", "[CLS]", "[BOS]"),
    "pad": ("<pad>", "[PAD]", "<|padding|>"),
    "unknown": ("<unk>", "[UNK]"),
}
_PARTS = ("train", "valid", "test")
_SPACE = "\u2581"
_MODEL = "vocabulary.model"  # here the tokenizer.json
_CHUNK = 10_000  # lines at a time


def _load(path: PathLike) -> Any:
    try:
        import tokenizers
    except ImportError as error:
        raise PenstockError(
            "tokenizer.json is read by the package tokenizers, which is not installed: "
            "pip install tokenizers"
        ) from error
    try:
        return tokenizers.Tokenizer.from_file(os.fspath(path))
    except Exception as error:  # the package raises no class of its own
        raise PenstockError(f"{os.fspath(path)}: expected a tokenizer.json, {error}") from error


def _lines(path: PathLike) -> Iterator[str]:
    with open(path, encoding="utf-8") as file:
        for line in file:
            yield " ".join(line.split())


def _chunks(path: PathLike) -> Iterator[list[str]]:
    chunk: list[str] = []
    for line in _lines(path):
        chunk.append(line)
        if len(chunk) == _CHUNK:
            yield chunk
            chunk = []
    if chunk:
        yield chunk


def _special(tokenizer: Any, chosen: Mapping[str, str]) -> dict[str, int]:
    """The numbers of pad, unknown, begin and end. Without a token of its own, each is the end."""
    found: dict[str, int] = {}
    for role, names in _SPECIAL.items():
        if role in chosen:
            names = (chosen[role],)
        numbers = [tokenizer.token_to_id(name) for name in names]
        known = [number for number in numbers if number is not None]
        if known:
            found[role] = known[0]
        elif role in chosen or role == "end":
            raise PenstockError(
                f"the tokenizer has no token {' or '.join(names)}; name its own with {role}="
            )
        else:
            found[role] = found["end"]
    return found


def _bytes_of_letters() -> dict[str, int]:
    """Which byte each letter stands for in pieces of GPT-2's kind: printable ones for themselves,
    others in their order for the letters from U+0100 on."""
    printable = {*range(33, 127), *range(161, 173), *range(174, 256)}
    letters = {chr(byte): byte for byte in printable}
    others = (byte for byte in range(256) if byte not in printable)
    letters.update({chr(256 + i): byte for i, byte in enumerate(others)})
    return letters


def _is_byte_level(document: Mapping[str, Any]) -> bool:
    decoder = document.get("decoder") or {}
    parts = decoder.get("decoders", [decoder])
    return any(part.get("type") == "ByteLevel" for part in parts)


def _pieces(tokenizer: Any, document: Mapping[str, Any], size: int) -> list[bytes]:
    """What each token is written as, with U+2581 for a space."""
    letters = _bytes_of_letters() if _is_byte_level(document) else {}
    pieces = []
    for number in range(size):
        piece = tokenizer.id_to_token(number) or ""
        if letters and all(letter in letters for letter in piece):
            raw = bytes(letters[letter] for letter in piece)
            pieces.append(raw.replace(b" ", _SPACE.encode()).replace(b"\n", _SPACE.encode()))
        else:
            pieces.append(piece.replace(" ", _SPACE).replace("\n", _SPACE).encode())
    return pieces


def _written(pieces: Sequence[bytes], ids: Sequence[int]) -> str:
    """As `penstock train` writes tokens."""
    text = b"".join(pieces[number] for number in ids).decode(errors="replace")
    return text.replace(_SPACE, " ").removeprefix(" ")


class _Encoder:
    def __init__(self, tokenizer: Any, special: Mapping[str, int], pieces: Sequence[bytes]):
        self.tokenizer = tokenizer
        self.special = special
        self.pieces = pieces

    def encode(self, lines: Sequence[str]) -> list[list[int]]:
        encoded = self.tokenizer.encode_batch(list(lines), add_special_tokens=False)
        return [one.ids for one in encoded]

    def check_written(self, lines: Sequence[str]) -> None:
        """BLEU compares what the trainer writes: it must be what the tokenizer would."""
        for line, ids in zip(lines, self.encode(lines)):
            written = _written(self.pieces, ids)
            expected = self.tokenizer.decode(ids)
            if " ".join(written.split()) != " ".join(expected.split()):
                raise PenstockError(
                    "translations need a tokenizer whose pieces side by side are the text, as "
                    f"byte-level ones and those with {_SPACE} have; {expected!r} would be written "
                    f"as {written!r}"
                )

    def row(self, path: PathLike, take: Callable[[list[int]], None]) -> dict[str, int]:
        """Gives the tokens of each line to `take`; returns their counts."""
        counts = {"words": 0, "tokens": 0, "unknown": 0, "longest": 0}
        has_unknown = self.special["unknown"] != self.special["end"]
        for lines in _chunks(path):
            for line, ids in zip(lines, self.encode(lines)):
                counts["words"] += len(line.split())
                counts["tokens"] += len(ids)
                counts["longest"] = max(counts["longest"], len(ids))
                if has_unknown:
                    counts["unknown"] += ids.count(self.special["unknown"])
                take(ids)
        return counts


def _write_row(encoder: _Encoder, path: PathLike, file: Path, size: int) -> dict[str, Any]:
    """A text as one row: uint16, or uint32 behind llm.c's header of version 7."""
    is_wide = size > 65_536
    tokens = array.array("I" if is_wide else "H")
    sentences = 0

    def take(ids: list[int]) -> None:
        nonlocal sentences
        sentences += 1
        tokens.extend(ids)
        tokens.append(encoder.special["end"])

    counts = encoder.row(path, take)
    counts["tokens"] = len(tokens)
    header = array.array("i", [20240801, 7, len(tokens)] + [0] * 253) if is_wide else b""
    with open(file, "wb") as out:
        out.write(bytes(header))
        out.write(tokens.tobytes())
    return {"sentences": sentences, **counts}


def _write_side(encoder: _Encoder, path: PathLike, stem: Path, has_lines: bool) -> dict[str, int]:
    tokens = array.array("H")
    begins = array.array("Q", [0])

    def take(ids: list[int]) -> None:
        tokens.extend(ids)
        begins.append(len(tokens))

    counts = encoder.row(path, take)
    Path(f"{stem}.bin").write_bytes(tokens.tobytes())
    Path(f"{stem}.idx").write_bytes(begins.tobytes())
    if has_lines:
        with open(f"{stem}.txt", "w", encoding="utf-8") as out:
            out.writelines(line + "\n" for line in _lines(path))
    return counts


def _count_pairs(files: Sequence[PathLike]) -> int:
    pairs = [sum(1 for _ in _lines(path)) for path in files]
    if pairs[0] != pairs[1]:
        raise PenstockError(
            f"{os.fspath(files[0])} has {pairs[0]} lines, {os.fspath(files[1])} has {pairs[1]}: "
            "expected a translation on the line of the same number"
        )
    return pairs[0]


def _write_pair(encoder: _Encoder, files: Sequence[PathLike], stem: Path) -> dict[str, Any]:
    is_scored = not stem.name.startswith("train")
    pairs = _count_pairs(files)
    if is_scored:
        encoder.check_written(next(_chunks(files[1]), [])[:200])
    source = _write_side(encoder, files[0], Path(f"{stem}.source"), is_scored)
    target = _write_side(encoder, files[1], Path(f"{stem}.target"), is_scored)
    return {
        "pairs": pairs,
        "tokens": source["tokens"] + target["tokens"],
        "source": source,
        "target": target,
    }


def _is_pair(files: Any) -> bool:
    return isinstance(files, (tuple, list))


def _recurring(train: PathLike, test: PathLike) -> float:
    """The share of the test's lines that are in train, too, but for case."""
    known = {line.casefold() for line in _lines(train)}
    lines = [line.casefold() for line in _lines(test)]
    return sum(line in known for line in lines) / len(lines) if lines else 0.0


def _is_token_folder(folder: Path) -> bool:
    try:
        return json.loads((folder / "manifest.json").read_text())["format"] == "penstock-tokens"
    except (OSError, ValueError, KeyError, TypeError):
        return False


def _open_folder(folder: Path, inputs: Sequence[Path]) -> None:
    if folder.exists() and any(folder.iterdir()) and not _is_token_folder(folder):
        raise PenstockError(f"{folder} holds other files than tokens: name a new folder")
    for path in inputs:
        if path.resolve().parent == folder.resolve():
            raise PenstockError(f"{path} lies in the folder to be written: name a new folder")
    folder.mkdir(parents=True, exist_ok=True)
    for name in ("manifest.json", _MODEL, "vocabulary.txt"):
        (folder / name).unlink(missing_ok=True)
    for part in _PARTS:
        for name in ("bin", "txt", "source.bin", "source.idx", "source.txt", "target.bin",
                     "target.idx", "target.txt"):  # fmt: skip
            (folder / f"{part}.{name}").unlink(missing_ok=True)


def token_folder(
    tokenizer: PathLike,
    output: PathLike,
    *,
    train: Files,
    valid: Optional[Files] = None,
    test: Optional[Files] = None,
    licence: str = "the user's own",
    **special: str,
) -> dict[str, Any]:
    """Writes the folder `output` for `penstock train --data` and returns its manifest.

    `tokenizer`: a `tokenizer.json`, which is copied into the folder. `train`, `valid`, `test`: text
    files with a sentence a line, or pairs of such files, a source and a target. `pad`, `unknown`,
    `begin` and `end` name tokens that are no text, where they have other names than usual; without
    one, the end stands for it. Translations need padding to be token 0, and at most 65,536 tokens.
    Raises PenstockError: `tokenizers` is missing, no such tokenizer, files that do not fit.
    """
    unknown_names = sorted(set(special) - set(_SPECIAL))
    if unknown_names:
        raise TypeError(f"token_folder() has no argument {unknown_names[0]!r}")
    files = {part: given for part, given in zip(_PARTS, (train, valid, test)) if given is not None}
    is_translation = _is_pair(train)
    if any(_is_pair(given) != is_translation for given in files.values()):
        raise PenstockError("expected one file for each part, or a source and a target for each")
    loaded = _load(tokenizer)
    numbers = _special(loaded, special)
    size = loaded.get_vocab_size(with_added_tokens=True)
    if is_translation and (numbers["pad"] != 0 or size > 65_536):
        raise PenstockError(
            "translations need padding as token 0, and at most 65,536 tokens: found padding "
            f"{numbers['pad']} and {size} tokens (a tokenizer trained with <pad> first has it so)"
        )
    content = Path(tokenizer).read_bytes()
    pieces = _pieces(loaded, json.loads(content), size)
    encoder = _Encoder(loaded, numbers, pieces)
    folder = Path(output)
    inputs = [Path(one) for given in files.values()
              for one in (given if is_translation else (given,))]  # fmt: skip
    for given in files.values() if is_translation else ():
        _count_pairs(given)
    _open_folder(folder, [Path(tokenizer), *inputs])
    parts: dict[str, Any] = {}
    for part, given in files.items():
        if is_translation:
            parts[part] = _write_pair(encoder, given, folder / part)
        else:
            parts[part] = _write_row(encoder, given, folder / f"{part}.bin", size)
    first = {part: given[0] if is_translation else given for part, given in files.items()}
    manifest = {
        "format": "penstock-tokens",
        "version": 1,
        "task": "translation" if is_translation else "text",
        "vocabulary": {
            "size": size,
            "type": "bpe",
            **numbers,
            "model": _MODEL,
            "crc32": zlib.crc32(content),
        },
        "parts": parts,
        "sources": [
            {
                "name": os.fspath(path),
                "version": "",
                "licence": licence,
                "files": [os.fspath(path)],
            }
            for given in files.values()
            for path in (given if is_translation else [given])
        ],
        "recurs": _recurring(first["train"], first["test"]) if "test" in first else None,
    }
    shutil.copyfile(tokenizer, folder / _MODEL)
    (folder / "vocabulary.txt").write_bytes(b"".join(piece + b"\n" for piece in pieces))
    (folder / "manifest.json").write_text(json.dumps(manifest, indent=1) + "\n", encoding="utf-8")
    return manifest


def _summary(manifest: Mapping[str, Any], output: str) -> str:
    size = manifest["vocabulary"]["size"]
    lines = [f"{output}: a {manifest['task']}, vocabulary of {size} tokens"]
    for part, counts in manifest["parts"].items():
        sentences = counts.get("sentences", counts.get("pairs"))
        lines.append(f"{part}: {sentences} sentences, {counts['tokens']} tokens")
    if manifest["recurs"] is not None:
        lines.append(f"of the test's sentences, {100 * manifest['recurs']:.1f} % are in train, too")
    return "\n".join(lines)


def main(arguments: Optional[Sequence[str]] = None) -> int:
    """The command `python -m penstock.text`."""
    parser = argparse.ArgumentParser(
        prog="python -m penstock.text",
        description=__doc__,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.add_argument("--tokenizer", required=True, help="a tokenizer.json of Hugging Face")
    parser.add_argument("-o", "--output", required=True, help="folder to write")
    for part in _PARTS:
        parser.add_argument(
            f"--{part}",
            nargs="+",
            metavar="FILE",
            required=part == "train",
            help="a text, or a source and a target, with a sentence a line",
        )
    for role in _SPECIAL:
        parser.add_argument(f"--{role}", help=f"the token for {role}, if it has an unusual name")
    given = vars(parser.parse_args(arguments))
    files = {part: given[part] for part in _PARTS if given[part]}
    if any(len(names) > 2 for names in files.values()):
        parser.error("expected one file for each part, or a source and a target")
    parts = {part: names[0] if len(names) == 1 else tuple(names) for part, names in files.items()}
    special = {role: given[role] for role in _SPECIAL if given[role]}
    try:
        manifest = token_folder(given["tokenizer"], given["output"], **parts, **special)
    except (PenstockError, OSError, UnicodeDecodeError) as error:
        print(f"penstock.text: {error}", file=sys.stderr)
        return 2
    print(_summary(manifest, given["output"]))
    return 0


if __name__ == "__main__":
    sys.exit(main())
