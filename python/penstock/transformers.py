"""Penstock under the Trainer of Hugging Face's transformers.

    trainer = penstock.transformers.Trainer(model, arguments, train_dataset=data,
                                            penstock={"workers": 2, "strategy": "1f1b-flush"})
    trainer.train()

Everything else is transformers' own: data, collators, schedules, logs, evaluations, callbacks.
"""

from __future__ import annotations

import os
import types
from pathlib import Path
from typing import Any, Mapping

import torch
import transformers

import penstock as _penstock
from penstock._errors import PenstockError
from penstock._places import join_batches

__all__ = ["Trainer"]

#: Of a checkpoint of transformers: Penstock's own, with the optimiser's state.
_FOLDER = "penstock"
#: What transformers does to labels that are no targets.
_IGNORED = -100
#: The version that this was tried with, and what of its Trainer, private, is replaced below.
_TRIED = "5.24"
_REPLACED = ("_prepare_for_training", "_clip_grad_norm", "_get_grad_norm", "_finalize_training",
             "_save", "_save_optimizer_and_scheduler", "_load_optimizer_and_scheduler")  # fmt: skip


def _no_step(*_: Any, **__: Any) -> None:
    """In the place of the optimiser's: the steps are made by the pipeline."""


def _refuse_other_versions() -> None:
    """A version without what is replaced would train, and silently do without the pipeline."""
    if missing := [name for name in _REPLACED if not hasattr(transformers.Trainer, name)]:
        raise PenstockError(
            f"penstock.transformers.Trainer was tried with transformers {_TRIED}; it found "
            f"{transformers.__version__}, whose Trainer has no {', '.join(missing)}: "
            f"pip install 'transformers=={_TRIED}.*'"
        )


class Trainer(transformers.Trainer):
    """`transformers.Trainer`, whose steps are made by a pipeline of workers in this process.

    :param penstock: options of `penstock.Trainer`: ``workers``, ``strategy``, ``precision``,
        ``device``, ``any_length``... The optimiser, its rates and the norm for clipping are those
        of transformers' arguments
    :raises PenstockError: arguments that Penstock cannot follow, from the constructor or `train`

    The model has the weights of the last step when it is evaluated, saved, and at the end of
    `train`. Callbacks that look at it in between call `update_model` first.
    """

    def __init__(
        self, *arguments: Any, penstock: Mapping[str, Any] | None = None, **named: Any
    ) -> None:
        _refuse_other_versions()
        super().__init__(*arguments, **named)
        self.pipeline: _penstock.Trainer | None = None
        self._options = dict(penstock or {})
        self._waiting: list[dict[str, torch.Tensor]] = []
        self._is_behind = False
        self._norm: float | None = None
        self._resume_from: Path | None = None
        self._refuse_what_is_not_followed()

    def _refuse_what_is_not_followed(self) -> None:
        given = self.args
        cases = [
            (self.compute_loss_func is not None, "compute_loss_func",
             "leave it out: the loss is the one that the model returns"),
            (type(self).compute_loss is not Trainer.compute_loss, "a compute_loss of its own",
             "leave it out: the loss is the one that the model returns"),
            (bool(given.label_smoothing_factor),
             f"label_smoothing_factor={given.label_smoothing_factor}", "leave it out"),
            (bool(given.neftune_noise_alpha),
             f"neftune_noise_alpha={given.neftune_noise_alpha}", "leave it out"),
            (given.bf16, "bf16=True",
             "leave it out, and give the Trainer penstock={'precision': 'bfloat16'}"),
            (given.fp16, "fp16=True",
             "leave it out, and give the Trainer penstock={'precision': 'float16'}"),
            (self.is_deepspeed_enabled, "DeepSpeed", "leave it out"),
            (self.is_fsdp_enabled, "FSDP", "leave it out"),
            (given.world_size > 1, f"{given.world_size} processes",
             "start one: its threads are the workers, penstock={'workers': ...}"),
            (given.device.type != "cpu", f"the device {given.device}",
             "give the arguments use_cpu=True; penstock={'device': 'cuda'} computes on GPUs"),
        ]  # fmt: skip
        for is_there, found, to_do in cases:
            if is_there:
                raise PenstockError(
                    f"penstock.transformers.Trainer cannot follow what it found, {found}: {to_do}"
                )

    def update_model(self) -> None:
        """Gives the model the weights of the last step."""
        if self.pipeline is not None and self._is_behind:
            self.model.load_state_dict(self.pipeline.state_dict())
            self._is_behind = False

    # What transformers calls

    def create_optimizer(self, *arguments: Any, **named: Any) -> torch.optim.Optimizer:
        made = super().create_optimizer(*arguments, **named)
        inner = getattr(made, "optimizer", made)  # a second `train` has accelerate's around it
        # A method, since a schedule of torch.optim asks for what it belongs to.
        inner.step = types.MethodType(_no_step, inner)
        return made

    def _prepare_for_training(self, *arguments: Any, **named: Any) -> Any:
        self.pipeline = None  # a new run begins with the model's weights
        self._resume_from = None
        self._is_behind = False
        self._waiting.clear()
        return super()._prepare_for_training(*arguments, **named)

    def training_step(
        self, model: torch.nn.Module, inputs: dict[str, Any], num_items_in_batch: Any = None
    ) -> torch.Tensor:
        self._waiting.append(self._prepare_inputs(inputs))
        if len(self._waiting) < self.current_gradient_accumulation_steps:
            return torch.zeros(())
        names = list(self._waiting[0])
        columns = [([batch[name] for name in names], None) for batch in self._waiting]
        batch = dict(zip(names, join_batches(columns, names, _IGNORED)[0]))
        self._waiting.clear()
        if self.pipeline is None:
            self.pipeline = self._new_pipeline(batch)
        result = self.pipeline.step(batch)
        self._is_behind = True
        self._norm = result["grad_norm"]
        return torch.tensor(result["loss"])

    def _new_pipeline(self, batch: dict[str, torch.Tensor]) -> _penstock.Trainer:
        self.model.train()
        optimizer = getattr(self.optimizer, "optimizer", self.optimizer)  # inside of accelerate's
        options = {"progress": False, "seed": self.args.seed, **self._options}
        made = _penstock.Trainer(
            self.model, batch, optimizer=optimizer, batch_size=len(next(iter(batch.values()))),
            clip_norm=self.args.max_grad_norm or 0.0, **options,
        )  # fmt: skip
        if self._resume_from is not None:
            made.resume(self._resume_from)
        return made

    def _clip_grad_norm(self, model: torch.nn.Module) -> float | None:
        return self._norm

    def _get_grad_norm(self, model: torch.nn.Module, grad_norm: Any = None) -> float | None:
        return self._norm

    def evaluation_loop(self, *arguments: Any, **named: Any) -> Any:
        self.update_model()
        return super().evaluation_loop(*arguments, **named)

    def _finalize_training(self, *arguments: Any, **named: Any) -> Any:
        self.update_model()
        return super()._finalize_training(*arguments, **named)

    # Checkpoints

    def _save(self, *arguments: Any, **named: Any) -> None:
        self.update_model()
        super()._save(*arguments, **named)

    def _save_optimizer_and_scheduler(self, output_dir: str) -> None:
        super()._save_optimizer_and_scheduler(output_dir)
        if self.pipeline is not None:
            self.pipeline.save(os.path.join(output_dir, _FOLDER), keep_last=1)

    def _load_optimizer_and_scheduler(self, checkpoint: str | None) -> None:
        super()._load_optimizer_and_scheduler(checkpoint)
        if checkpoint is None:
            return
        self._resume_from = Path(checkpoint) / _FOLDER
        if not self._resume_from.is_dir():
            raise PenstockError(
                f"{checkpoint} has no folder '{_FOLDER}', so no state of the optimiser: it is not "
                "of penstock.transformers.Trainer. Load its model, and train that"
            )
