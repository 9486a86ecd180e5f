"""Penstock as a strategy of Lightning.

    trainer = lightning.Trainer(strategy=penstock.lightning.Strategy(workers=2), accelerator="cpu")
    trainer.fit(module, loader)
"""

from __future__ import annotations

import contextlib
import os
import shutil
from pathlib import Path
from typing import Any, Callable, Iterator, Mapping

import lightning.pytorch as pl
import torch
from lightning.pytorch.strategies import SingleDeviceStrategy
from lightning.pytorch.utilities.model_helpers import is_overridden
from torch.utils import _pytree as pytree

import penstock as _penstock
from penstock._errors import PenstockError

__all__ = ["Strategy"]

#: Beside a checkpoint of Lightning: Penstock's own, with the optimiser's state.
_BESIDE = ".penstock"
#: Hooks that no step calls, or whose work on gradients it does not see, of modules and callbacks.
_OF_GRADIENTS = ("on_before_backward", "on_after_backward", "on_before_optimizer_step")
_OF_MODULES = ("backward", "configure_gradient_clipping", "optimizer_zero_grad", *_OF_GRADIENTS)


class _Logged:
    """What a step logs: the loss, by name and how, and other numbers."""

    def __init__(self) -> None:
        self.losses: list[tuple[str, dict[str, Any]]] = []
        self.others: list[str] = []


class _Step(torch.nn.Module):
    """A LightningModule's `training_step` as a module that returns its loss."""

    def __init__(self, module: pl.LightningModule, structure: Any, takes_index: bool) -> None:
        super().__init__()
        self.module, self.structure = module, structure
        self._index = (0,) if takes_index else ()
        self.logged = _Logged()  # an object: torch.export undoes what changes a module's attributes

    def forward(self, *values: torch.Tensor) -> torch.Tensor:
        batch = pytree.tree_unflatten(values, self.structure)
        with self._recorded() as found:
            made = self.module.training_step(batch, *self._index)
        loss = made["loss"] if isinstance(made, Mapping) else made
        self.logged.losses = [(name, how) for name, value, how in found if value is loss]
        self.logged.others = [name for name, value, _ in found if value is not loss]
        return loss

    @contextlib.contextmanager
    def _recorded(self) -> Iterator[list[tuple[str, Any, dict[str, Any]]]]:
        """What the module logs meanwhile, instead of logging it."""
        found: list[tuple[str, Any, dict[str, Any]]] = []

        def log(name: str, value: Any, *_: Any, **how: Any) -> None:
            found.append((name, value, how))

        def log_dict(values: Mapping[str, Any], *_: Any, **how: Any) -> None:
            found.extend((name, value, how) for name, value in values.items())

        self.module.log, self.module.log_dict = log, log_dict  # type: ignore[assignment]
        try:
            yield found
        finally:
            del self.module.log, self.module.log_dict


class Strategy(SingleDeviceStrategy):
    """Steps are made by a pipeline of workers in this process.

    :param options: of `penstock.Trainer`: ``workers``, ``strategy``, ``precision``, ``device``,
        ``micro_batches``... The optimiser and its rates are what `configure_optimizers` returns
    :raises PenstockError: when the fit begins: what it cannot follow

    `training_step` is called once, with the first batch, and exported: it depends on the batch
    alone, and returns the loss, or a dict with ``loss``. What it logs under a name is the loss of
    each step; other numbers cannot be logged there. The module has the new weights when it is
    validated, saved, and when the fit has ended or failed. Hooks in between, `on_train_end` among
    them, call `update_module` before they look at it.
    """

    strategy_name = "penstock"

    def __init__(self, **options: Any) -> None:
        super().__init__(device="cpu")
        self.pipeline: _penstock.Trainer | None = None
        self._options = options
        self._step: _Step | None = None
        self._is_behind = False
        self._resume_from: Path | None = None

    def update_module(self) -> None:
        """Gives the module the weights of the last step."""
        if self.pipeline is not None and self._step is not None and self._is_behind:
            self._step.load_state_dict(self.pipeline.state_dict())
            self._is_behind = False

    def setup(self, trainer: pl.Trainer) -> None:
        super().setup(trainer)
        self.pipeline, self._is_behind = None, False  # a new run begins with the module's weights
        if trainer.state.fn != "fit":
            return
        self._refuse_what_is_not_followed(trainer)

    def _refuse_what_is_not_followed(self, trainer: pl.Trainer) -> None:
        module = self.lightning_module
        # Lightning has one of its own where configure_optimizers returns None.
        count = sum(type(one).__name__ != "_MockOptimizer" for one in self.optimizers)
        cases = [
            (not module.automatic_optimization, "automatic_optimization=False",
             "leave it out: the pipeline makes the steps"),
            (count != 1, f"{count} optimisers of configure_optimizers", "return one"),
            (trainer.accumulate_grad_batches != 1,
             f"accumulate_grad_batches={trainer.accumulate_grad_batches}",
             "make batches so many times as large; micro_batches of the Strategy divides them"),
            (trainer.gradient_clip_algorithm == "value", "gradient_clip_algorithm='value'",
             "clip by norm"),
            (trainer.precision != "32-true", f"precision='{trainer.precision}'",
             "leave it out, and give the Strategy precision='bfloat16' or 'float16'"),
        ]  # fmt: skip
        of_its_own = [f"{type(module).__name__}.{name}" for name in _OF_MODULES
                      if is_overridden(name, module)]  # fmt: skip
        of_its_own += [f"{type(callback).__name__}.{name}" for callback in trainer.callbacks
                       for name in _OF_GRADIENTS if is_overridden(name, callback)]  # fmt: skip
        cases += [(True, name, "leave it out: gradients stay within the pipeline")
                  for name in of_its_own]  # fmt: skip
        for is_there, found, to_do in cases:
            if is_there:
                raise PenstockError(
                    f"penstock.lightning.Strategy cannot follow what it found, {found}: {to_do}"
                )

    def _new_pipeline(self, step: _Step, values: list[torch.Tensor]) -> _penstock.Trainer:
        module = self.lightning_module
        given = self.optimizers[0]
        made = _penstock.Trainer(
            step, values, optimizer=getattr(given, "_optimizer", given), loss="model",
            batch_size=len(values[0]), clip_norm=module.trainer.gradient_clip_val or 0.0,
            **{"progress": False, **self._options},
        )  # fmt: skip
        if others := step.logged.others:
            pl.utilities.rank_zero_warn(
                f"training_step logs {', '.join(others)}: with penstock, only the loss "
                "can be logged there"
            )
        if self._resume_from is not None:
            made.resume(self._resume_from)
            self._resume_from = None
        return made

    # Steps

    def training_step(self, batch: Any, *index: Any) -> torch.Tensor:
        values, structure = pytree.tree_flatten(batch)
        if self.pipeline is None or self._step is None:
            # Lightning hands the index to a training_step that takes it.
            self._step = _Step(self.lightning_module, structure, takes_index=bool(index))
            self.pipeline = self._new_pipeline(self._step, values)
        elif structure != self._step.structure:
            here, first = (" ".join(str(one).split()) for one in (structure, self._step.structure))
            raise PenstockError(
                f"a batch has the structure {here}, the first one had {first}: let the loader make "
                "all batches of one structure, keys in one order"
            )
        loss = torch.tensor(self.pipeline.step(values)["loss"])
        self._is_behind = True
        for name, how in self._step.logged.losses:
            self.lightning_module.log(name, loss, **{"batch_size": len(values[0]), **how})
        return loss

    def backward(self, closure_loss: torch.Tensor, *_: Any, **__: Any) -> torch.Tensor:
        return closure_loss

    def optimizer_step(self, optimizer: Any, closure: Callable[[], Any], *_: Any, **__: Any) -> Any:
        return closure()

    def on_validation_start(self) -> None:
        self.update_module()

    def on_train_end(self) -> None:
        self.update_module()

    def teardown(self) -> None:
        """After an exception, too."""
        try:
            self.update_module()
        except PenstockError as error:  # of a pipeline that failed: the failure itself is raised
            pl.utilities.rank_zero_warn(f"the module has not the weights of the last step: {error}")
        self._resume_from = None
        super().teardown()

    # Checkpoints

    def lightning_module_state_dict(self) -> dict[str, Any]:
        self.update_module()
        return super().lightning_module_state_dict()

    def save_checkpoint(
        self, checkpoint: dict[str, Any], filepath: Any, *more: Any, **named: Any
    ) -> None:
        super().save_checkpoint(checkpoint, filepath, *more, **named)
        if self.pipeline is not None and "optimizer_states" in checkpoint:
            self.pipeline.save(f"{filepath}{_BESIDE}", keep_last=1)

    def remove_checkpoint(self, filepath: Any) -> None:
        super().remove_checkpoint(filepath)
        shutil.rmtree(f"{filepath}{_BESIDE}", ignore_errors=True)

    def load_optimizer_state_dict(self, checkpoint: Mapping[str, Any]) -> None:
        super().load_optimizer_state_dict(checkpoint)
        if self._resume_from is None or not self._resume_from.is_dir():
            raise PenstockError(
                "a fit goes on from a checkpoint of penstock.lightning.Strategy: there is no "
                f"folder {self._resume_from}"
            )

    def load_checkpoint(self, checkpoint_path: Any, *more: Any, **named: Any) -> dict[str, Any]:
        if self.lightning_module.trainer.state.fn == "fit":  # others take the weights alone
            # ModelCheckpoint(save_last="link") makes a link to a file.
            self._resume_from = Path(f"{os.path.realpath(checkpoint_path)}{_BESIDE}")
        return super().load_checkpoint(checkpoint_path, *more, **named)
