"""Who is told of a training: functions, objects with methods for the moments of a run, loggers."""

from __future__ import annotations

import difflib
import time
import warnings
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Callable, Iterable, Mapping

from penstock._loggers import Logger, logger_of

if TYPE_CHECKING:
    from penstock._trainer import Trainer

METRICS = ("loss", "accuracy", "perplexity")
#: Of them, those of which more is better.
RISES = ("accuracy",)


class Callback:
    """Base class for `Trainer.fit(callbacks=...)`: override what you need. An exception in one ends
    the run, after its step; what was saved before stays.

    In a job rank 0 alone is told, unless ``every_rank`` is true: what all ranks have to do
    together, such as `Trainer.state_dict`, needs that, and is done in `on_epoch`, `on_evaluate`,
    `on_save` or `on_end`."""

    every_rank = False

    def __init_subclass__(cls, **options: Any) -> None:
        """A method that nobody would call is refused."""
        super().__init_subclass__(**options)
        known = [name for name in vars(Callback) if name.startswith("on_")]
        for name, value in vars(cls).items():
            if name.startswith("on_") and name not in known and callable(value):
                nearest = difflib.get_close_matches(name, known, 1, 0.0)[0]
                raise TypeError(
                    f"{cls.__name__}.{name}: a Callback has no such moment; did you mean "
                    f"{nearest}? There are {', '.join(known)}"
                )

    def on_begin(self, trainer: "Trainer") -> None:
        """`fit` begins."""

    def on_step(self, trainer: "Trainer", step: Mapping[str, Any]) -> None:
        """An optimiser step is done: ``epoch``, ``step``, ``loss`` and so on, as a function gets
        them."""

    def on_epoch(self, trainer: "Trainer", epoch: Mapping[str, Any]) -> None:
        """An epoch is over, evaluated and saved: what `fit` returns of it."""

    def on_evaluate(self, trainer: "Trainer", evaluation: Mapping[str, Any]) -> None:
        """``step``, ``loss``, ``accuracy``, ``perplexity`` and ``is_best``."""

    def on_save(self, trainer: "Trainer", saved: Mapping[str, Any]) -> None:
        """A checkpoint is whole: ``step`` and ``folder``."""

    def on_end(self, trainer: "Trainer") -> None:
        """`fit` ends, also with an exception."""


@dataclass(frozen=True)
class EarlyStopping:
    """Ends `fit` when evaluations no longer improve.

    :param patience: so many of them in a row are no better than the best
    :param min_delta: by which one has to be better
    """

    patience: int = 3
    min_delta: float = 0.0

    def __post_init__(self) -> None:
        if isinstance(self.patience, bool) or not isinstance(self.patience, int):
            raise TypeError(f"patience: expected a whole number, found {self.patience!r:.60}")
        if self.patience < 1:
            raise ValueError(
                f"patience: expected at least 1 evaluation without improvement, found "
                f"{self.patience}"
            )
        if not self.min_delta >= 0:
            raise ValueError(f"min_delta: expected at least 0, found {self.min_delta!r:.60}")


def is_better(metric: str, value: float, other: float | None, by: float = 0.0) -> bool:
    """A value that is no number is not."""
    if value != value:
        return False
    if other is None:
        return True
    return value > other + by if metric in RISES else value < other - by


class Watch:
    """All who are told, on this rank."""

    def __init__(
        self, trainer: "Trainer", callbacks: Any, loggers: Any, log_every: int
    ) -> None:
        callbacks = () if callbacks is None else callbacks
        if isinstance(callbacks, EarlyStopping):
            callbacks = [callbacks]
        callbacks = [callbacks] if callable(callbacks) or isinstance(callbacks, Callback) else (
            callbacks)  # fmt: skip
        if not isinstance(callbacks, Iterable):
            raise TypeError(f"callbacks: expected functions, found {callbacks!r:.80}")
        given = list(callbacks)
        for one in given:
            if isinstance(one, type) and issubclass(one, Callback):
                raise TypeError(f"callbacks: expected an object, found the class {one.__name__}")
            if isinstance(one, EarlyStopping):
                raise TypeError(f"callbacks: {one} is given as early_stopping={one}")
            if not isinstance(one, Callback) and not callable(one):
                raise TypeError(f"callbacks: expected functions, found {one!r:.80}")
        self._trainer = trainer
        self._is_first = trainer.rank == 0
        self._objects = [one for one in given if isinstance(one, Callback)
                         and (self._is_first or one.every_rank)]  # fmt: skip
        self._functions: list[Callable[[dict[str, Any]], Any]] = [
            one for one in given if self._is_first and not isinstance(one, Callback)
        ]
        loggers = [loggers] if isinstance(loggers, Logger) or callable(loggers) else loggers
        if not isinstance(loggers, Iterable):
            raise TypeError(f"loggers: expected loggers or functions, found {loggers!r:.80}")
        self._loggers = [logger_of(one) for one in loggers]
        if not self._is_first:
            self._loggers = []
        self._every = log_every
        self._since: list[dict[str, Any]] = []
        self._since_time = time.perf_counter()

    @property
    def sees_steps(self) -> bool:
        return bool(self._objects or self._functions or self._loggers)

    def open(self) -> None:
        """Files of loggers. Raises OSError and PenstockError before anything is trained."""
        for logger in self._loggers:
            logger.open(self._trainer.steps)

    def begin(self) -> None:
        for one in self._objects:
            one.on_begin(self._trainer)

    def step(self, step: dict[str, Any]) -> None:
        for function in self._functions:
            function(step)
        for one in self._objects:
            one.on_step(self._trainer, step)
        if not self._loggers:
            return
        self._since.append(step)
        if step["step"] % self._every == 0:
            self._log_steps()

    def epoch(self, epoch: dict[str, Any]) -> None:
        self._log_steps()
        for one in self._objects:
            one.on_epoch(self._trainer, epoch)

    def evaluate(self, evaluation: dict[str, Any]) -> None:
        self._log_steps()
        numbers = {f"eval/{name}": evaluation[name] for name in METRICS
                   if evaluation.get(name) is not None}  # fmt: skip
        self._log(numbers, evaluation["step"])
        for one in self._objects:
            one.on_evaluate(self._trainer, evaluation)

    def save(self, saved: dict[str, Any]) -> None:
        for one in self._objects:
            one.on_save(self._trainer, saved)

    def end(self) -> None:
        """All are told, whatever one of them does. Raises the first exception of a callback."""
        self._log_steps()
        for logger in self._loggers:
            try:
                logger.close()
            except Exception as error:
                warnings.warn(
                    f"{logger} fails at its end: {type(error).__name__}: {error}", stacklevel=2
                )
        failed: Exception | None = None
        for one in self._objects:
            try:
                one.on_end(self._trainer)
            except Exception as error:
                failed = failed or error
        if failed is not None:
            raise failed

    def _log_steps(self) -> None:
        """The mean of the losses since the last time; of the last step the others."""
        if not self._since:
            return
        steps, self._since = self._since, []
        targets = sum(one["targets"] for one in steps)
        numbers = {"train/loss": sum(one["loss"] * one["targets"] for one in steps)
                   / max(targets, 1)}  # fmt: skip
        last = steps[-1]
        for name, value in (("lr", last.get("lr")), ("grad_norm", last["grad_norm"]),
                            ("accuracy", last["accuracy"]), ("epoch", last["epoch"] + 1),
                            ("samples_per_s", self._speed(steps))):  # fmt: skip
            if value is not None:
                numbers[f"train/{name}"] = value
        self._log(numbers, last["step"])

    def _speed(self, steps: list[dict[str, Any]]) -> float:
        now, before = time.perf_counter(), self._since_time
        self._since_time = now
        return sum(one["samples"] for one in steps) / max(now - before, 1e-9)

    def _log(self, numbers: dict[str, float], step: int) -> None:
        for logger in list(self._loggers):
            try:
                logger.log(numbers, step)
            except Exception as error:  # a training is worth more than its log
                self._loggers.remove(logger)
                warnings.warn(
                    f"{logger} fails at step {step}, and the training goes on without it: "
                    f"{type(error).__name__}: {error}",
                    stacklevel=2,
                )
