"""Rows of what a language model learns, one at a time, and where each came from: from files of
JSON lines, or from anything that gives dicts."""

from __future__ import annotations

import json
import os
from pathlib import Path
from typing import Any, Iterable, Iterator, Mapping, NamedTuple, Sequence

from penstock._errors import PenstockError

_MOST_LINE = 256 << 20
#: What an answer to a prompt may be called.
_ANSWERS = ("completion", "answer", "response", "output")
_EXPECTED = "expected 'text', 'prompt' with 'completion' or 'answer', or 'messages'"


class Row(NamedTuple):
    """What one line says. Of `text`, `prompt` and `messages` one is there."""

    place: str  # "chat.jsonl:17"
    text: str | None = None
    prompt: str | None = None
    answer: str = ""
    messages: list[dict[str, Any]] | None = None
    tools: list[Any] | None = None


def _kind(value: Any) -> str:
    names = {str: "a text", dict: "an object", list: "a list", bool: "a truth value",
             type(None): "null"}  # fmt: skip
    return names.get(type(value), "a number" if isinstance(value, (int, float)) else "a value")


def checked_text(value: Any, place: str, name: str) -> str:
    """Raises PenstockError: it is none, or cannot be written as UTF-8."""
    if not isinstance(value, str):
        raise PenstockError(f"{place}: {name}: expected a text, found {_kind(value)}")
    try:
        value.encode()
    except UnicodeEncodeError as error:
        raise PenstockError(
            f"{place}: {name} has half of a pair of surrogates (\\u{ord(value[error.start]):04x})"
            f" at character {error.start + 1}, which is no text"
        ) from None
    return value


def _message(value: Any, place: str, number: int) -> dict[str, Any]:
    name = f"messages[{number}]"
    if not isinstance(value, Mapping):
        raise PenstockError(f"{place}: '{name}': expected an object, found {_kind(value)}")
    for key in ("role", "content"):
        if key not in value:
            raise PenstockError(f"{place}: '{name}' has no '{key}'")
        checked_text(value[key], place, f"'{name}.{key}'")
    return dict(value)


def row_of(value: Any, place: str) -> Row:
    """Raises PenstockError, which begins with `place`. Other keys are left alone."""
    if not isinstance(value, Mapping):
        raise PenstockError(f"{place}: expected an object, found {_kind(value)}")
    value = {key: one for key, one in value.items() if one is not None}
    found = [key for key in ("text", "prompt", "messages") if key in value]
    if len(found) != 1:
        what = " and ".join(f"'{key}'" for key in found or list(map(str, value))[:8]) or "nothing"
        raise PenstockError(f"{place}: {_EXPECTED}, found {what}")
    if found == ["text"]:
        return Row(place, text=checked_text(value["text"], place, "'text'"))
    if found == ["prompt"]:
        names = [name for name in _ANSWERS if name in value]
        if len(names) != 1:
            several = f"both '{names[0]}' and '{names[1]}'" if names else "none of them"
            raise PenstockError(
                f"{place}: 'prompt': expected one of {', '.join(_ANSWERS)} beside it, found "
                f"{several}"
            )
        prompt = checked_text(value["prompt"], place, "'prompt'")
        answer = checked_text(value[names[0]], place, f"'{names[0]}'")
        return Row(place, prompt=prompt, answer=answer)
    messages, tools = value["messages"], value.get("tools")
    if not isinstance(messages, Sequence) or isinstance(messages, str) or not len(messages):
        what = "an empty list" if isinstance(messages, list) else _kind(messages)
        raise PenstockError(f"{place}: 'messages': expected a list of messages, found {what}")
    if tools is not None and not isinstance(tools, list):
        raise PenstockError(f"{place}: 'tools': expected a list, found {_kind(tools)}")
    checked = [_message(one, place, k) for k, one in enumerate(messages)]
    return Row(place, messages=checked, tools=tools)


def _refuse_constant(name: str) -> Any:
    raise ValueError(f"{name} is no number of JSON")


def _rows_of_lines(path: Path) -> Iterator[Row]:
    try:
        file = open(path, "rb")
    except OSError as error:
        raise PenstockError(f"cannot read {path}: {error.strerror}") from None
    number = rows = 0
    with file:
        while line := file.readline(_MOST_LINE + 1):
            number += 1
            place = f"{path}:{number}"
            if len(line) > _MOST_LINE:
                raise PenstockError(f"{place}: expected a line of at most {_MOST_LINE >> 20} MiB")
            if number == 1:
                line = line.removeprefix(b"\xef\xbb\xbf")
            if not line.strip():
                continue
            try:
                value = json.loads(line.decode().rstrip("\r\n"), parse_constant=_refuse_constant)
            except UnicodeDecodeError as error:
                raise PenstockError(
                    f"{place}: expected UTF-8, found the byte 0x{line[error.start]:02x} at "
                    f"{error.start + 1}"
                ) from None
            except json.JSONDecodeError as error:
                raise PenstockError(
                    f"{place}: expected one object of JSON a line: {error.msg} at character "
                    f"{error.colno}"
                ) from None
            except (ValueError, RecursionError) as error:
                raise PenstockError(f"{place}: expected one object of JSON: {error}") from None
            rows += 1
            yield row_of(value, place)
    if rows == 0:
        raise PenstockError(f"{path}: expected at least one object of JSON, found an empty file")


def _tables(path: Path) -> Any:
    """Of a Parquet or Arrow file, or a folder of them: a data set of the package datasets."""
    try:
        import datasets
    except ImportError:
        raise PenstockError(
            f"{path}: files of Parquet and Arrow are read by the package datasets, which is not "
            "installed: pip install datasets"
        ) from None
    try:
        if path.is_dir() and not (files := sorted(path.glob("*.parquet"))):
            found = datasets.load_from_disk(os.fspath(path))
        elif path.is_dir():
            found = datasets.Dataset.from_parquet([os.fspath(one) for one in files])
        elif path.suffix == ".arrow":
            found = datasets.Dataset.from_file(os.fspath(path))
        else:
            found = datasets.Dataset.from_parquet(os.fspath(path))
    except Exception as error:  # of datasets and pyarrow, without a class of their own
        raise PenstockError(f"{path}: the package datasets cannot read it: {error}") from error
    if isinstance(found, Mapping):
        raise PenstockError(
            f"{path}: expected one data set, found the parts {', '.join(map(str, found))}: name "
            f"the folder of one, such as {path / str(next(iter(found), 'train'))}"
        )
    return found


def _rows_of(values: Iterable[Any], name: str) -> Iterator[Row]:
    number = 0
    for number, value in enumerate(values, 1):
        yield row_of(value, f"{name}: row {number}")
    if number == 0:
        raise PenstockError(f"{name}: expected at least one row, found none")


def rows_in(source: Any) -> Iterator[Row]:
    """Of a file of JSON lines, of a file or a folder of Parquet or Arrow, or of an iterable of
    dicts. Raises PenstockError."""
    if not isinstance(source, (str, os.PathLike)):
        yield from _rows_of(source, "the data")
        return
    path = Path(source)
    if path.is_dir() or path.suffix in (".parquet", ".arrow"):
        yield from _rows_of(_tables(path), os.fspath(path))
    else:
        yield from _rows_of_lines(path)
