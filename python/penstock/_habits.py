"""When `Trainer.fit` evaluates, saves and ends, and what of it stays: the evaluations, the best."""

from __future__ import annotations

import json
import math
import os
from pathlib import Path
from typing import Any, Mapping, NamedTuple

from penstock import _core
from penstock._callbacks import METRICS, RISES, EarlyStopping, is_better
from penstock._parts import PathLike

_FORMAT = "penstock-evaluations"
#: Beside the checkpoints.
RECORD = "evaluations.json"
_MOST_BYTES = 64 << 20
_ALL = 2**31 - 1


def _number(name: str, value: Any, what: str) -> int:
    if isinstance(value, bool) or not isinstance(value, int):
        raise TypeError(f"{name}: expected a whole number, found {value!r:.60}")
    if value < 1:
        raise ValueError(f"{name}: expected at least 1 {what}, found {value}")
    return value


def _interval(name: str, value: Any) -> int | None:
    """None: after each epoch."""
    if value == "epoch":
        return None
    if isinstance(value, str) or value is None:
        raise ValueError(f"{name}: expected 'epoch' or a number of steps, found {value!r:.60}")
    return _number(name, value, "step")


def _with_a_length(data: Any) -> None:
    """What is evaluated again and again has an end, and can be gone through more than once."""
    try:
        found = len(data)
    except TypeError:
        raise ValueError(
            "eval_dataset: expected tensors, a data set or a loader that has a length (len), found "
            f"{type(data).__name__}, which may have no end or be gone after once; a list of its "
            "batches has one"
        ) from None
    if found == 0:
        raise ValueError(f"eval_dataset: {type(data).__name__} is empty")


class Evaluations:
    """Those of a training, in order; what early stopping and the best are made of."""

    def __init__(self) -> None:
        self.all: list[dict[str, Any]] = []
        self._is_written = False

    @property
    def last_step(self) -> int:
        return self.all[-1]["step"] if self.all else -1

    def best_step(self, metric: str) -> int | None:
        best: tuple[float, int] | None = None
        for one in self.all:
            value = one.get(metric)
            if value is not None and is_better(metric, value, best and best[0]):
                best = (value, one["step"])
        return best and best[1]

    def without_improvement(self, metric: str, by: float) -> int:
        """Those in a row, at the end."""
        best: float | None = None
        count = 0
        for one in self.all:
            if not one.get("due", True):
                continue
            value = one.get(metric)
            if value is not None and is_better(metric, value, best, by):
                best, count = value, 0
            else:
                count += 1
        return count

    def add(self, result: Mapping[str, Any], step: int, due: bool) -> dict[str, Any]:
        loss = result["loss"]
        made = {
            "step": step,
            "loss": loss,
            "accuracy": result["accuracy"],
            "perplexity": math.exp(loss) if loss < 700 else loss * math.inf,
        }
        self.all.append(made if due else {**made, "due": False})
        return made

    def text(self, metric: str) -> str:
        plain = [
            {name: None if isinstance(value, float) and not math.isfinite(value) else value
             for name, value in one.items()}
            for one in self.all
        ]  # fmt: skip
        document = {"format": _FORMAT, "metric": metric, "best_step": self.best_step(metric)}
        return json.dumps({**document, "evaluations": plain}, indent=1)

    def write(self, folder: PathLike, metric: str) -> None:
        """Replaces the file at once; one that is damaged is kept. Raises PenstockError."""
        part = Path(folder) / f".{RECORD}.part"
        try:
            before = None if self._is_written else Record.of(folder)
            if before is not None and before.damage:
                before.path.replace(before.aside)
            with open(part, "w", encoding="utf-8") as file:
                file.write(self.text(metric) + "\n")
                file.flush()
                os.fsync(file.fileno())
            part.replace(Path(folder) / RECORD)
            self._is_written = True
        except OSError as error:
            part.unlink(missing_ok=True)
            raise _core.PenstockError(
                f"cannot write '{Path(folder) / RECORD}': {error.strerror or error}; the "
                "checkpoints in the folder are whole"
            ) from None

    def take(self, text: str, steps: int) -> None:
        """Those of `Record.text`, up to a step."""
        self.all = []
        for one in _parsed(text) if text else ():
            if one["step"] <= steps and one["step"] > self.last_step:
                self.all.append(one)


def _parsed(text: str) -> list[dict[str, Any]]:
    """Raises ValueError, which says what is damaged."""
    try:
        document = json.loads(text)
        found = document["format"]
        if found != _FORMAT:
            raise ValueError(f"expected the format {_FORMAT}, found {found!r:.60}")
        evaluations = []
        for one in document["evaluations"]:
            names = {"step": one["step"], **{name: one.get(name) for name in METRICS}}
            for name, value in names.items():
                if not isinstance(value, (int, float)) and (value is not None or name == "step"):
                    raise ValueError(f"{name}: expected a number, found {value!r:.60}")
            evaluations.append(names if one.get("due", True) else {**names, "due": False})
        return evaluations
    except KeyError as error:
        raise ValueError(f"there is no {error}") from None
    except (TypeError, AttributeError, RecursionError):
        raise ValueError("expected an object with a list of evaluations") from None


class Record(NamedTuple):
    """evaluations.json in the folder of checkpoints, or in that around a checkpoint."""

    path: Path
    text: str  # empty: there is none that can be read
    damage: str  # empty: it is whole, or there is none

    @classmethod
    def of(cls, folder: PathLike) -> "Record":
        path = Path(folder)
        if (path / "manifest.json").exists():
            path = path.resolve().parent
        path /= RECORD
        try:
            with open(path, "rb") as file:
                text = file.read(_MOST_BYTES).decode()
            _parsed(text)
        except FileNotFoundError:
            return cls(path, "", "")
        except OSError as error:
            return cls(path, "", error.strerror or str(error))
        except ValueError as error:
            return cls(path, "", str(error))
        return cls(path, text, "")

    @property
    def aside(self) -> Path:
        """Where one that is damaged goes before another is written."""
        return self.path.with_name(self.path.name + ".damaged")


def best_of_link(folder: PathLike) -> int | None:
    """The step of the checkpoint that the link `best` in a folder names, if it is there."""
    link = Path(folder) / "best"
    try:
        name = os.readlink(link).rstrip("/")
    except OSError:
        return None
    step = name.removeprefix("step-")
    return int(step) if step != name and step.isdecimal() and link.is_dir() else None


def is_same_data(one: Any, other: Any) -> bool:
    """The same tensors, also in another tuple, list or dict."""
    if one is other:
        return True
    if isinstance(one, Mapping) and isinstance(other, Mapping):
        return one.keys() == other.keys() and all(is_same_data(one[k], other[k]) for k in one)
    both = (tuple, list)
    if isinstance(one, both) and isinstance(other, both):
        return len(one) == len(other) and all(map(is_same_data, one, other))
    return False


def mode_of(schedule: str) -> str | None:
    """What a ReduceLROnPlateau says it follows: "min", "max" or nothing."""
    words = [word.strip() for word in schedule.split(",")]
    said = [word.removeprefix("mode=") for word in words if word.startswith("mode=")]
    return said[0] if said else None


class Habits:
    """The options of one `fit`. Raises ValueError and TypeError."""

    def __init__(
        self, *, checkpoint: PathLike | None, eval_dataset: Any, eval_every: Any, save_every: Any,
        keep_last: Any, keep_best: Any, early_stopping: Any, metric: Any, max_steps: Any,
        log_every: Any,
    ) -> None:  # fmt: skip
        self.checkpoint = checkpoint
        self.dataset = eval_dataset
        if eval_dataset is not None:
            _with_a_length(eval_dataset)
        self.eval_every = _interval("eval_every", eval_every)
        self.save_every = _interval("save_every", save_every or "epoch")
        keep_last = _ALL if keep_last is None else keep_last
        self.keep_last = _number("keep_last", keep_last, "checkpoint")
        self.keep_best = bool(keep_best)
        if isinstance(early_stopping, bool):
            early_stopping = EarlyStopping() if early_stopping else None
        if early_stopping is not None and not isinstance(early_stopping, EarlyStopping):
            early_stopping = EarlyStopping(early_stopping)
        self.stopping: EarlyStopping | None = early_stopping
        if metric not in METRICS:
            raise ValueError(f"metric: expected one of {', '.join(METRICS)}, found {metric!r:.60}")
        self.metric: str = metric
        self.max_steps = None if max_steps is None else _number("max_steps", max_steps, "step")
        self.log_every = _number("log_every", log_every, "step")
        if eval_dataset is None:
            asked = {"keep_best": self.keep_best, "early_stopping": self.stopping is not None,
                     "eval_every": eval_every != "epoch"}  # fmt: skip
            for name, is_asked in asked.items():
                if is_asked:
                    raise ValueError(f"{name}: evaluations need an eval_dataset")
        if self.keep_best and checkpoint is None:
            raise ValueError("keep_best: expected a checkpoint, the folder in which the best stays")

    def refuse_mode(self, mode: str | None) -> None:
        """Of a ReduceLROnPlateau that takes better evaluations for worse ones."""
        rises = self.metric in RISES
        if mode is not None and mode != ("max" if rises else "min"):
            raise ValueError(
                f"lr_schedule: the ReduceLROnPlateau has mode='{mode}', and a better {self.metric} "
                f"is {'higher' if rises else 'lower'}: expected mode='{'max' if rises else 'min'}' "
                "or another metric"
            )

    @property
    def pauses(self) -> bool:
        """Whether there is anything to do within an epoch."""
        return self.eval_every is not None or self.save_every is not None

    def steps_left(self, step: int) -> int | None:
        """Until the next moment at which there is something to do; None: at the epoch's end."""
        moments = [self.eval_every - step % self.eval_every] if self.eval_every else []
        if self.save_every:
            moments.append(self.save_every - step % self.save_every)
        if self.max_steps is not None:
            moments.append(max(self.max_steps - step, 0))
        return min(moments) if moments else None

    def evaluates(self, step: int, at_end: bool) -> bool:
        """Whether an evaluation is due, however a run is interrupted."""
        if self.dataset is None:
            return False
        return at_end if self.eval_every is None else step % self.eval_every == 0

    def saves(self, step: int, at_end: bool) -> bool:
        if self.checkpoint is None:
            return False
        return at_end or (self.save_every is not None and step % self.save_every == 0)

    def is_over(self, step: int, evaluations: Evaluations) -> bool:
        if self.max_steps is not None and step >= self.max_steps:
            return True
        if self.stopping is None:
            return False
        waited = evaluations.without_improvement(self.metric, self.stopping.min_delta)
        return waited >= self.stopping.patience
