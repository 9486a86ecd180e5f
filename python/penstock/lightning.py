"""Penstock as a strategy of Lightning.

    trainer = lightning.Trainer(strategy=penstock.lightning.Strategy(workers=2), accelerator="cpu")
    trainer.fit(module, loader)
"""

from __future__ import annotations

import contextlib
import shutil
from pathlib import Path
from typing import Any, Callable, Iterator, Mapping

import lightning.pytorch as pl
import torch
from lightning.pytorch.strategies import SingleDeviceStrategy
from torch.utils import _pytree as pytree

import penstock as _penstock
from penstock._errors import PenstockError

__all__ = ["Strategy"]

#: Beside a checkpoint of Lightning: Penstock's own, with the optimiser's state.
_BESIDE = ".penstock"


class _Logged:
    """What a step logs: the loss, by name and how, and other numbers."""

    def __init__(self) -> None:
        self.losses: list[tuple[str, dict[str, Any]]] = []
        self.others: list[str] = []


class _Step(torch.nn.Module):
    """A LightningModule's `training_step` as a module that returns its loss."""

    def __init__(self, module: pl.LightningModule, structure: Any) -> None:
        super().__init__()
        self.module, self._structure = module, structure
        self.logged = _Logged()  # an object: torch.export undoes what changes a module's attributes

    def forward(self, *values: torch.Tensor) -> torch.Tensor:
        batch = pytree.tree_unflatten(values, self._structure)
        with self._recorded() as found:
            made = self.module.training_step(batch, 0)
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
    validated, saved, and at the end; callbacks in between call `update_module`.
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
        refused = {
            "manual optimisation": not self.lightning_module.automatic_optimization,
            f"{len(self.optimizers)} optimisers": len(self.optimizers) != 1,
            "accumulate_grad_batches, instead of larger batches":
                trainer.accumulate_grad_batches != 1,
            "clipping by value": trainer.gradient_clip_algorithm == "value",
            f"precision {trainer.precision}, instead of Strategy(precision=...)":
                trainer.precision != "32-true",
        }  # fmt: skip
        for what, is_there in refused.items():
            if is_there:
                raise PenstockError(f"penstock.lightning.Strategy does not follow {what}")

    def _new_pipeline(self, batch: Any, values: list[torch.Tensor]) -> _penstock.Trainer:
        module = self.lightning_module
        self._step = _Step(module, pytree.tree_structure(batch))
        given = self.optimizers[0]
        made = _penstock.Trainer(
            self._step, values, optimizer=getattr(given, "_optimizer", given), loss="model",
            batch_size=len(values[0]), clip_norm=module.trainer.gradient_clip_val or 0.0,
            **{"progress": False, **self._options},
        )  # fmt: skip
        if others := self._step.logged.others:
            pl.utilities.rank_zero_warn(
                f"training_step logs {', '.join(others)}: with penstock, only the loss "
                "can be logged there"
            )
        if self._resume_from is not None:
            made.resume(self._resume_from)
            self._resume_from = None
        return made

    # Steps

    def training_step(self, batch: Any, *_: Any, **__: Any) -> torch.Tensor:
        values = pytree.tree_leaves(batch)
        if self.pipeline is None:
            self.pipeline = self._new_pipeline(batch, values)
        loss = torch.tensor(self.pipeline.step(values)["loss"])
        self._is_behind = True
        for name, how in self._step.logged.losses if self._step is not None else ():
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
        self._resume_from = Path(f"{checkpoint_path}{_BESIDE}")
        return super().load_checkpoint(checkpoint_path, *more, **named)
