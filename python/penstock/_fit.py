"""One call of `Trainer.fit`: its epochs, and what is done between their steps."""

from __future__ import annotations

import itertools
import os
import warnings
from pathlib import Path
from typing import TYPE_CHECKING, Any, Callable

from penstock import _core
from penstock._callbacks import Watch
from penstock._epoch import Epoch
from penstock._habits import Habits
from penstock._places import kept_generator

if TYPE_CHECKING:
    from penstock._trainer import Trainer


class Fit:
    """Evaluates, saves and tells, on all ranks in the same order. What it decides depends on steps
    and evaluations alone, which all ranks know."""

    def __init__(self, trainer: "Trainer", habits: Habits, watch: Watch) -> None:
        self._trainer = trainer
        self.habits = habits
        self.watch = watch
        self._saved_at: tuple[Any, ...] = (-1,)  # steps, and where the data were

    def run(
        self, epochs: int | None, run_epoch: Callable[[Epoch], None], goes_on: bool
    ) -> list[dict[str, Any]]:
        """`goes_on`: a loader is where a checkpoint was, which may be behind the last batch."""
        trainer, history = self._trainer, []
        trainer._fitting = True
        try:
            self._begin()
            for _ in itertools.count() if epochs is None else range(epochs):
                if trainer._over:
                    break
                tell = self.watch.step if self.watch.sees_steps else None
                summary = Epoch(trainer._epoch, trainer.steps, tell, trainer._progress)
                with summary:
                    run_epoch(summary)
                if summary.steps == 0 and not goes_on:
                    raise ValueError(
                        f"the loader gave no batch in epoch {trainer._epoch + 1} (a generator can "
                        "be used once only)"
                    )
                if summary.steps > 0:
                    history.append(self._end_epoch(summary))
                else:
                    trainer._epoch += 1
                goes_on = False
                if trainer._job is not None:
                    trainer._sync_stop()
                if trainer._stopped:
                    break
            self._evaluate_at_the_end(history)
        except BaseException:
            trainer._fitting = False
            try:
                self.watch.end()
            except Exception as error:  # the first one is said
                warnings.warn(
                    f"a callback fails at the end: {type(error).__name__}: {error}", stacklevel=2
                )
            raise
        trainer._fitting = False
        self.together(self.watch.end)
        return history

    def _begin(self) -> None:
        """What cannot work is said before anything is trained."""
        trainer, habits = self._trainer, self.habits
        self.together(self._open)
        trainer._take_evaluations(habits)
        step = trainer.steps
        is_due = habits.evaluates(step, at_end=trainer._resumed_between_epochs)
        if trainer._resumed_at == step > 0 and is_due:
            if trainer._evaluations.last_step != step:  # a stop came between the two
                self._evaluate(due=True)
        trainer._over = habits.is_over(step, trainer._evaluations)
        if habits.keep_best and trainer._evaluations.all:
            self._set_best(trainer._evaluations.best_step(habits.metric))

    def _set_best(self, step: int | None) -> None:
        assert self.habits.checkpoint is not None
        self._trainer._best = (os.path.realpath(self.habits.checkpoint), step)

    def _open(self) -> None:
        checkpoint = self.habits.checkpoint
        if checkpoint is not None and self._trainer.rank == 0:
            folder = Path(checkpoint)
            try:
                folder.mkdir(parents=True, exist_ok=True)
            except OSError as error:
                raise _core.PenstockError(
                    f"cannot make the checkpoint folder '{folder}': {error.strerror}"
                ) from None
            if not os.access(folder, os.W_OK | os.X_OK):
                raise _core.PenstockError(f"cannot write into the checkpoint folder '{folder}'")
            self._trainer._refuse_others(folder)
        self.watch.open()
        self.watch.begin()

    def _end_epoch(self, summary: Epoch) -> dict[str, Any]:
        trainer = self._trainer
        is_cut = trainer._over and trainer._is_inside_epoch(summary)
        if not is_cut:
            trainer._epoch += 1
            trainer._seen = trainer._seen and trainer._seen._replace(is_over=False)
            trainer._inside = None
        result = summary.result()
        self.pause(at_end=not is_cut, is_cut=is_cut)
        self._add_evaluation(result)
        self.together(lambda: self.watch.epoch(result))
        return result

    def _add_evaluation(self, result: dict[str, Any]) -> None:
        evaluations = self._trainer._evaluations
        if self.habits.dataset is not None and evaluations.last_step == self._trainer.steps:
            last = evaluations.all[-1]
            result["eval_loss"], result["eval_accuracy"] = last["loss"], last["accuracy"]

    def _evaluate_at_the_end(self, history: list[dict[str, Any]]) -> None:
        trainer = self._trainer
        if self.habits.dataset is None or not history:
            return
        if trainer._evaluations.last_step != trainer.steps:
            self._evaluate(due=False)
            self._add_evaluation(history[-1])

    def pause(self, at_end: bool, is_cut: bool = False) -> None:
        """Between two steps, or at the end of an epoch: evaluates and saves where that is due."""
        trainer, habits = self._trainer, self.habits
        step = trainer.steps
        due = habits.evaluates(step, at_end) and trainer._evaluations.last_step != step
        saves = habits.saves(step, at_end or is_cut) and self._saved_at != trainer._place_now()
        if due and trainer._learns_from_evaluations:  # the checkpoint has what it changes
            self._evaluate(due)
        elif saves:  # an evaluation that fails loses nothing
            self._save()
        if due and not trainer._learns_from_evaluations:
            self._evaluate(due)
        if saves and self._saved_at != trainer._place_now():
            self._save()
        if trainer._job is not None:
            trainer._sync_stop()  # a callback of rank 0 may have asked for it
        trainer._over = habits.is_over(step, trainer._evaluations)

    def _evaluate(self, due: bool) -> None:
        trainer, habits = self._trainer, self.habits
        with kept_generator():
            result = trainer.evaluate(habits.dataset)
        made = trainer._evaluations.add(result, trainer.steps, due)
        if made[habits.metric] is None:
            raise _core.PenstockError(
                f"metric: the evaluation has no {habits.metric}, since nothing the model says is "
                "right or wrong: expected 'loss' or 'perplexity'"
            )
        if due and trainer._learns_from_evaluations:
            trainer._session.observe(float(made[habits.metric]), habits.metric == "accuracy")
        is_best = trainer._evaluations.best_step(habits.metric) == trainer.steps
        if habits.keep_best and is_best:
            self._set_best(trainer.steps)
            if self._saved_at[0] != trainer.steps:
                self._save()

        def tell() -> None:
            if habits.checkpoint is not None and trainer.rank == 0:
                if habits.keep_best and is_best:
                    self._mark_best(habits.checkpoint)
                trainer._evaluations.write(habits.checkpoint, habits.metric)
            self.watch.evaluate({**made, "is_best": is_best})

        self.together(tell)

    def _mark_best(self, folder: "str | os.PathLike[str]") -> None:
        if not _core.mark_best(os.fspath(folder), self._trainer.steps):
            warnings.warn(
                f"the link '{Path(folder) / 'best'}' cannot be set to the checkpoint of step "
                f"{self._trainer.steps}, which is the best: is something else of that name there?",
                stacklevel=2,
            )

    def _save(self) -> None:
        trainer = self._trainer
        assert self.habits.checkpoint is not None
        folder = trainer.save(self.habits.checkpoint, keep_last=self.habits.keep_last)
        self._saved_at = trainer._place_now()
        self.together(lambda: self.watch.save({"step": trainer.steps, "folder": folder}))

    def together(self, work: Callable[[], Any]) -> None:
        """What fails on one rank fails on all."""
        session = self._trainer._session
        try:
            work()
        except BaseException as error:
            session.give_up(f"{type(error).__name__}: {error}")
            raise
        if self._trainer._job is not None:
            session.end_epoch()
