"""Loggers: where the numbers of a training go. Each is told them by name, with the step."""

from __future__ import annotations

import csv
import json
import math
import os
import time
from pathlib import Path
from typing import Any, Callable, Mapping, Sequence

from penstock import _core
from penstock._parts import PathLike

_COLUMNS = ("step", "train/epoch", "train/loss", "train/accuracy", "train/lr", "train/grad_norm",
            "train/samples_per_s", "eval/loss", "eval/accuracy", "eval/perplexity")  # fmt: skip


class Logger:
    """Base class of loggers; a function (numbers, step=...) is one, too, such as `wandb.log`,
    `mlflow.log_metrics` and `trackio.log`. Rank 0 alone logs. One that fails while the model trains
    is warned of, and the training goes on without it."""

    def open(self, step: int) -> None:
        """`fit` begins after so many steps. What is raised here ends it before it trains."""

    def log(self, numbers: Mapping[str, float], step: int) -> None:
        """Numbers such as ``train/loss`` and ``eval/accuracy``."""
        raise NotImplementedError

    def close(self) -> None:
        """`fit` ends."""


class _Function(Logger):
    def __init__(self, function: Callable[..., Any]) -> None:
        self._function = function

    def __repr__(self) -> str:
        return f"the logger {getattr(self._function, '__qualname__', self._function)!s:.80}"

    def log(self, numbers: Mapping[str, float], step: int) -> None:
        self._function(dict(numbers), step=step)


class TensorBoard(Logger):
    """Files of events, which TensorBoard shows: ``tensorboard --logdir FOLDER``. Neither TensorFlow
    nor the package tensorboard is needed to write them.

    :param folder: gets a new file with each `fit`
    """

    def __init__(self, folder: PathLike) -> None:
        self._folder = Path(folder)
        self._file: Any = None

    def __repr__(self) -> str:
        return f"TensorBoard({os.fspath(self._folder)!r})"

    def open(self, step: int) -> None:
        self._file = _core.EventFile(os.fspath(self._folder), step + 1)

    def log(self, numbers: Mapping[str, float], step: int) -> None:
        self._file.add(step, [(name, float(value)) for name, value in numbers.items()])

    def text(self, name: str, text: str, step: int) -> None:
        """A text, such as a sample of what a model writes; while `fit` runs."""
        if self._file is None:
            raise RuntimeError(f"{self}: texts are taken while fit runs")
        self._file.add_text(step, name, text)

    def close(self) -> None:
        self._file = None


class _Lines(Logger):
    """A file with a line for each call. A run that goes on from a checkpoint continues it there;
    what the file says of later steps is kept in another one, such as log.1.csv."""

    def __init__(self, path: PathLike) -> None:
        self._path = Path(path)
        self._file: Any = None

    def __repr__(self) -> str:
        return f"{type(self).__name__}({os.fspath(self._path)!r})"

    def open(self, step: int) -> None:
        try:
            self._path.parent.mkdir(parents=True, exist_ok=True)
            before = self._path.read_text() if self._path.exists() else ""
            lines = before.splitlines(keepends=True)
            kept = self._up_to(step, lines)
            if kept != lines:
                self._set_aside()
            self._file = open(self._path, "w" if kept != lines else "a", newline="")
            if kept != lines:
                self._file.writelines(kept)
            if not kept:
                self._begin()
            self._file.flush()
        except OSError as error:
            raise _core.PenstockError(
                f"{self}: cannot write it: {error.strerror or error}"
            ) from None
        except UnicodeDecodeError:
            raise _core.PenstockError(f"{self}: the file that is there is no text") from None

    def _set_aside(self) -> None:
        number = 1
        while (other := self._path.with_suffix(f".{number}{self._path.suffix}")).exists():
            number += 1
        self._path.rename(other)

    def _begin(self) -> None:
        pass

    def _up_to(self, step: int, lines: list[str]) -> list[str]:
        """The lines that stay."""
        raise NotImplementedError

    def close(self) -> None:
        if self._file is not None:
            self._file.close()
            self._file = None


class CSV(_Lines):
    """A table with a row for each call, and empty cells for what it does not say.

    :param path: a file; what is in it of steps that the run does not go on from stays beside it
    """

    def _begin(self) -> None:
        self._write(_COLUMNS)

    def _write(self, row: Sequence[Any]) -> None:
        csv.writer(self._file, lineterminator="\n").writerow(row)

    def _up_to(self, step: int, lines: list[str]) -> list[str]:
        header = ",".join(_COLUMNS)
        if not lines or lines[0].strip() != header:
            return []
        kept = lines[:1]
        for line in lines[1:]:
            number = line.split(",", 1)[0]
            if line.endswith("\n") and number.isdigit() and int(number) <= step:
                kept.append(line)
        return kept if len(kept) > 1 or len(lines) == 1 else []

    def log(self, numbers: Mapping[str, float], step: int) -> None:
        values = {"step": step, **numbers}
        self._write([values.get(name, "") for name in _COLUMNS])
        self._file.flush()


class JSONLines(_Lines):
    """A line of JSON for each call: ``step``, ``time`` (seconds since 1970) and the numbers.

    :param path: a file; what is in it of steps that the run does not go on from stays beside it
    """

    def _up_to(self, step: int, lines: list[str]) -> list[str]:
        kept = []
        for line in lines:
            try:
                found = json.loads(line)["step"] if line.endswith("\n") else None
            except (ValueError, KeyError, TypeError):
                continue
            if isinstance(found, int) and found <= step:
                kept.append(line)
        return kept

    def log(self, numbers: Mapping[str, float], step: int) -> None:
        plain = {name: value if math.isfinite(value) else None for name, value in numbers.items()}
        self._file.write(json.dumps({"step": step, "time": round(time.time(), 3), **plain}) + "\n")
        self._file.flush()


def logger_of(one: Any) -> Logger:
    if isinstance(one, Logger):
        return one
    if isinstance(one, type) and issubclass(one, Logger):
        raise TypeError(f"loggers: expected an object, found the class {one.__name__}")
    if not callable(one):
        raise TypeError(f"loggers: expected loggers or functions, found {one!r:.80}")
    return _Function(one)


def loggers_in(folder: PathLike) -> list[Logger]:
    """What `penstock train --log-dir` writes, too."""
    path = Path(folder)
    return [TensorBoard(path), CSV(path / "log.csv"), JSONLines(path / "log.jsonl")]
