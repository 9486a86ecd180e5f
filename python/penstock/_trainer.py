"""Training from Python."""

from __future__ import annotations

import contextlib
import fcntl
import inspect
import json
import math
import operator
import os
import shutil
import sys
import tempfile
import time
import warnings
import weakref
from pathlib import Path
from typing import Any, Callable, Iterable, Iterator, Mapping, Sequence, Union

import torch

from penstock import _core, _find, _merged
from penstock._callbacks import Callback, EarlyStopping, Watch
from penstock._classes import Classes, classes_of, names_of
from penstock._datasets import DatasetLoader, is_dataset, loader_of
from penstock._epoch import Epoch, mean_of
from penstock._export import (
    TARGET_NUMBER, Example, PathLike, export, hint_of_experts, tensor_of, unwrapped,
)  # fmt: skip
from penstock._fit import Fit
from penstock._habits import (
    Evaluations, Habits, Record, best_of_link, is_same_data, mode_of,
)  # fmt: skip
from penstock._loggers import Logger, loggers_in
from penstock._mapped import map_to_file
from penstock._optimizer import MakeSchedule, Optimizer, Schedule
from penstock._places import (
    Inside, Resumable, Seen, is_between_epochs, join_batches, kept_generator, resumable,
    says_where_it_is, state_of, state_text,
)  # fmt: skip

Batch = Union[torch.Tensor, Sequence[Any], Mapping[str, Any]]
OneCallback = Union[Callback, Callable[[dict[str, Any]], Any]]
OneLogger = Union[Logger, Callable[..., Any]]

_LOSSES = {
    torch.nn.CrossEntropyLoss: "cross-entropy",
    torch.nn.MSELoss: "mean-squared-error",
    torch.nn.BCEWithLogitsLoss: "binary-cross-entropy",
}
_TARGETS = ("targets", "target", "labels", "label", "y")
#: In a micro-batch; the statistics of batch norm are poor then.
_FEW_SAMPLES = 8
#: Micro-batches of a step, where nobody says how many.
_PARTS_PER_WORKER = 4
#: Policies under which a step at a time is the same as many at once.
_FLUSH = "flush"


class _Folder:
    """A temporary folder that goes with its owner, or at the end of the process that made it: a
    process that was forked from that one leaves it alone. What killed processes have left goes
    when the next folder is made: nobody has its lock."""

    _PREFIX = "penstock-model-"

    def __init__(self) -> None:
        for left in Path(tempfile.gettempdir()).glob(self._PREFIX + "*"):
            with contextlib.suppress(OSError):
                if time.time() - left.stat().st_mtime < 60:
                    continue  # another process may not have its lock yet
                lock = _locked(left)
                shutil.rmtree(left, ignore_errors=True)
                os.close(lock)
        self.name = tempfile.mkdtemp(prefix=self._PREFIX)
        self._lock = _locked(Path(self.name))  # until the process ends, or this
        weakref.finalize(self, _remove_own, self.name, os.getpid(), self._lock)


def _locked(folder: Path) -> int:
    """A file descriptor that has the folder's lock. Raises OSError where another one has it."""
    descriptor = os.open(folder, os.O_RDONLY | os.O_DIRECTORY)
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except OSError:
        os.close(descriptor)
        raise
    return descriptor


def _remove_own(folder: str, process: int, lock: int) -> None:
    if os.getpid() == process:
        shutil.rmtree(folder, ignore_errors=True)
        os.close(lock)


class Trainer:
    """A model, cut into stages that train at the same time.

    :param model: a module, or a file of `penstock.export`. A module is not changed: take
        `state_dict` back
    :param example: an example batch for a module, as for `penstock.export`
    :param strategy: "auto" (the fastest exact one for these workers, found by measuring), or one of
        `penstock plan`: "serial", "dp", "gpipe", "1f1b", "1f1b-flush", "zb-h1"...
    :param workers: that train: threads of this process, dealt to all ranks in a job (below); None:
        2, or one per rank. A plan may give a stage several (replicas), which add their gradients
        in an order of their own: results then differ from those of one worker by rounding
    :param tensor: members of the team that runs each replica of a stage, with a part of its weights
        each (tensor parallelism): a number, or "auto": the fastest, by stage; None: 1. `workers`
        counts every member
    :param sequence_parallel: with `tensor`, on models of sequences: between the layers whose
        weights a team shares out, its members have a part of the places each; less memory
    :param straight: one worker per stage, so no replicas
    :param gradient_groups: sum gradients in so many groups of micro-batches, a multiple of every
        stage's replicas: runs with the same number agree bit for bit, whatever their workers; 0:
        the smallest number that is possible
    :param plan: a plan of `penstock.plan`, or a file of one, instead of strategy and workers
    :param lora: train low-rank adapters of this rank (LoRA), as PEFT has them, beside the products
        with the weights of ``lora_targets``, and freeze everything else. `state_dict` names them as
        PEFT does, and `peft.PeftModel.from_pretrained` loads the folder that `save` returns
    :param lora_targets: modules that get an adapter, in a list or with commas: ends of their names,
        with * for any characters; None: "all-linear", all linear ones but the last
    :param lora_alpha: what an adapter adds is multiplied by this, divided by the rank; None: 8
    :param frozen_weights: hold parameters that are not trained "as-stored", or those of linear
        modules in 8 bits: "int8"; about a quarter of the memory of float32
    :param loss: "cross-entropy", "mean-squared-error", "binary-cross-entropy", "model" (the model
        returns it), or the torch.nn class of that loss or an object of it; None: "model" where the
        model returns one number, otherwise "cross-entropy". The mean is over all targets of a batch
    :param label_smoothing: cross-entropy spreads this share of a target over all classes
    :param ignore_index: targets of this value count nothing in cross-entropy; None: -100
    :param gradient_accumulation_steps: so many batches, each of ``batch_size`` samples or of a
        loader, make one optimiser step: they are its micro-batches, or each is cut into several.
        Its loss is the mean over all their targets
    :param optimizer: "SGD", "Adam", "AdamW", "NAdam", "RMSprop", "Adagrad", "ASGD", "Adafactor",
        "Muon", "NAdamW", "Lion", "LAMB", "LARS" or "SOAP", with ``lr`` (None: 0.001),
        ``weight_decay`` (None: 0.01 of AdamW, 0.1 of Muon, otherwise 0), and where they have them
        ``momentum``,
        ``nesterov``, ``betas`` and ``eps``. What else an optimiser has may follow its name, as in
        "adam,amsgrad". Or a new optimiser of torch.optim for the module's parameters: its groups,
        with their rates and weight decays, are taken over, and the learning rates that it has when
        a step (of `fit` with tensors: an epoch) begins; also a pair of a Muon for matrices and an
        AdamW for the rest
    :param lr_schedule: "constant", "linear", "cosine" (both to zero at ``total_steps``), or "step"
        (times ``lr_factor`` every ``lr_every`` steps); a class of torch.optim.lr_scheduler with its
        arguments, such as "MultiStepLR,milestones=30:80"; or a function that makes a schedule of
        torch.optim.lr_scheduler for the optimiser it is given, which advances with each step, or
        with each `observe` if it is a ReduceLROnPlateau
    :param lr_warmup: steps over which the rate rises
    :param large_batch: rules of Goyal et al. (2017) for steps of more samples than
        ``base_batch_size``: "all", or names as `penstock train --large-batch` takes them. The
        property `large_batch` says what they set
    :param base_batch_size: samples of a step for which ``lr`` is right; None: 64
    :param scale_steps: steps over which the rate grows to that of the large batch, which
        ``large_batch`` needs unless it is without "warmup": those of 5 epochs in the paper
    :param ema: evaluate with an exponential mean of the weights, whose old value keeps this share
        in each step (AveragedModel of torch.optim.swa_utils); 0: none
    :param swa_start: evaluate with the mean of the weights of all steps after this many
    :param swa_trigger: the same from the value on, of those that `observe` is told, that is worse
        than the best of all but the last so many before it; with "SGD" and 5 that is NT-ASGD
    :param clip_norm: the largest norm of all gradients together; 0: not clipped
    :param batch_size: samples of a step, for which the plan is made
    :param micro_batches: parts into which a step is cut; None: four per worker. Where the model
        makes a loss of its own that is no mean over samples or targets, it has to be given: 1 is
        what PyTorch computes
    :param weights: the policy of weights: "flush" (exact), "stash", "2bw"...; None: the strategy's,
        and flush under "auto"
    :param compensate: what makes up for the delays of other weights than flush: "predict", "rate",
        "correct" or "nesterov"; None: nothing
    :param boundary: numbers in which values and gradients travel between stages: "bfloat16",
        "float16", "int8", "subspace:K", or "auto", chosen for each boundary; None: "float32", the
        only one that changes nothing of what is learned
    :param sync: in a job, how replicas add their gradients: "ordered" (with the bits of one
        process), "ring" or "hierarchical" (which differ by rounding)...; None: the fastest by
        prediction, and ordered where nothing is gained
    :param precision: in which the stages compute: "float32", "bfloat16" or "float16" (with a scale
        for the loss that follows the gradients). Weights, their updates and `state_dict` stay
        float32; None: float32, or the plan's
    :param device: what the workers compute on: "cpu", "cuda" (all GPUs), "cuda:0", a list such as
        "cuda:0,cuda:1" (neighbouring workers share one where there are more workers), or a
        torch.device. Batches and `state_dict` stay in the memory of the host. Not in a job
    :param cuda_graphs: on GPUs, give all kernels of a forward or backward pass in one call
    :param compile: run the stages as PyTorch's compiler makes them, ahead of time, where that is
        possible: on CPUs, in float32. The first trainer of a model takes 10 to 60 s per stage
        longer, later ones find the stages in the user's folder of caches
    :param profile_cache: a folder in which measured profiles are kept, for later trainers of the
        same model, batch size and machine; False: none; "new": measure again. None or True: as the
        variable PENSTOCK_PROFILE_CACHE says, or penstock/profiles in the user's folder of caches
    :param fabric: in a job, what carries large messages between ranks: "auto" (connections, and the
        memory of the same host), "tcp", "gloo", "mpi" (started by mpirun) or "local", which refuses
        a job of several ranks. All trainers of a program have the same
    :param tls: in a job, how connections between ranks are encrypted: "off", "secret" (with
        PENSTOCK_JOB_TOKEN as the key), or a folder with tls.crt, tls.key and ca.crt; None: as
        PENSTOCK_TLS says, or off. All trainers of a program have the same
    :param threads: of each worker
    :param seed: of dropout and of the order of samples
    :param classes: the names of the classes 0, 1, ...; None: those of the data set of a loader
        (``loader.dataset.classes``, as torchvision's have them). Checkpoints keep them, and data
        or checkpoints that number other classes are refused
    :param drop_last: an epoch of `fit` with tensors ends before a step that would not have all of
        its samples
    :param any_length: batches may have sequences of other lengths than the example, as for
        `penstock.export`. Plans are made for the example's length
    :param progress: show a bar on standard error; None: where that is a terminal
    :raises PenstockError: a model that cannot be trained here (every operator and line of Python),
        options that do not fit

    Started by torchrun, mpirun, srun or ``penstock launch`` as one of several ranks, the trainers
    of all ranks train one model together. The weights are those of rank 0's module. All ranks make
    the same calls with the same data, from the constructor on; what differs is refused. Callbacks
    and the bar are for rank 0 alone.
    """

    def __init__(
        self,
        model: torch.nn.Module | PathLike,
        example: Example | None = None,
        *,
        strategy: str | None = None,
        workers: int | None = None,
        tensor: int | str | None = None,
        sequence_parallel: bool = False,
        straight: bool = False,
        plan: Mapping[str, Any] | PathLike | None = None,
        lora: int | None = None,
        lora_targets: str | Sequence[str] | None = None,
        lora_alpha: float | None = None,
        frozen_weights: str = "as-stored",
        loss: Any = None,
        optimizer: Any = "SGD",
        lr: float | None = None,
        momentum: float | None = None,
        nesterov: bool = False,
        weight_decay: float | None = None,
        betas: tuple[float, float] | None = None,
        eps: float | None = None,
        lr_schedule: str | MakeSchedule = "constant",
        lr_warmup: int = 0,
        lr_factor: float = 0.1,
        lr_every: int = 0,
        total_steps: int = 0,
        large_batch: str = "",
        base_batch_size: int | None = None,
        scale_steps: int = 0,
        ema: float = 0.0,
        swa_start: int | None = None,
        swa_trigger: int | None = None,
        clip_norm: float = 0.0,
        batch_size: int = 64,
        micro_batches: int | None = None,
        gradient_accumulation_steps: int = 1,
        gradient_groups: int = 0,
        weights: str | None = None,
        compensate: str | None = None,
        boundary: str | None = None,
        sync: str | None = None,
        precision: str | None = None,
        device: str | torch.device = "cpu",
        cuda_graphs: bool = False,
        compile: bool = False,
        profile_cache: PathLike | bool | None = None,
        fabric: str = "auto",
        tls: PathLike | None = None,
        threads: int = 1,
        seed: int = 1,
        label_smoothing: float | None = None,
        ignore_index: int | None = None,
        drop_last: bool = False,
        classes: Sequence[str] | None = None,
        any_length: bool = False,
        progress: bool | None = None,
    ) -> None:
        self._classes = Classes()
        self._seen: Seen | None = None
        self._loader_place = ""
        self._not_kept = ""  # why, of a loader's place
        if classes is not None:
            self._classes.learn(names_of(classes), "the option classes")
        self._folder: _Folder | None = None
        self._names: list[str] | None = None
        planned = (
            strategy, workers, tensor, sequence_parallel or None, straight or None, micro_batches,
            weights, compensate, boundary, sync, precision,
        )  # fmt: skip
        if plan is not None and any(one is not None for one in planned):
            raise ValueError(
                "a plan says what strategy, workers, tensor, sequence_parallel, straight, "
                "micro_batches, weights, compensate, boundary, sync and precision are"
            )
        strategy = "auto" if strategy is None else _word("strategy", strategy)
        weights = None if weights is None else _word("weights", weights)
        compensate = None if compensate is None else _word("compensate", compensate)
        boundary = None if boundary is None else _word("boundary", boundary)
        sync = "auto" if sync is None else _word("sync", sync)
        precision = "float32" if precision is None else _word("precision", precision)
        if strategy == "auto" and weights is None and compensate in (None, "none"):
            weights = "flush"
        device = _word("device", str(device) if isinstance(device, torch.device) else device)
        batch_size = _whole("batch_size", batch_size)
        threads, seed = _whole("threads", threads), _whole("seed", seed)
        micro_batches = None if micro_batches is None else _whole("micro_batches", micro_batches)
        workers = None if workers is None else _whole("workers", workers)
        self._accumulates = _whole("gradient_accumulation_steps", gradient_accumulation_steps)
        if self._accumulates < 1:
            raise ValueError("gradient_accumulation_steps: expected at least 1 batch, found 0")
        if isinstance(tensor, str):
            tensor = _word("tensor", tensor, ("auto",))
        elif tensor is not None:
            tensor = str(_whole("tensor", tensor))
        tls = None if tls is None else os.fspath(tls)
        self._job = _join(fabric=_word("fabric", fabric), tls=tls)
        if self._job is not None and device != "cpu":
            raise ValueError(
                f"device: in a job the workers of a Trainer are on CPUs, found '{device}'; "
                "penstock train has --device for jobs"
            )
        module = unwrapped(model) if isinstance(model, torch.nn.Module) else None
        self._optimizer = Optimizer(
            optimizer, module, lr=lr, momentum=momentum, nesterov=nesterov or None,
            weight_decay=weight_decay, betas=betas, eps=eps,
        )  # fmt: skip
        self._schedule: Schedule | None = None
        self._factor = 1.0
        if not isinstance(lr_schedule, str) and callable(lr_schedule):
            if lr_warmup or lr_every or total_steps:
                raise ValueError(
                    "lr_warmup, lr_every and total_steps are for schedules by name; a schedule of "
                    "torch.optim.lr_scheduler has its own"
                )
            made = self._optimizer.schedule(lr_schedule)
            self._schedule = made if isinstance(made, Schedule) else None
            lr_schedule = "constant" if isinstance(made, Schedule) else made
        elif isinstance(lr_schedule, torch.optim.lr_scheduler.LRScheduler):
            raise TypeError(
                "lr_schedule: expected a function that makes the schedule, such as lambda "
                f"optimizer: {type(lr_schedule).__name__}(optimizer, ...)"
            )
        self._is_constant = lr_schedule == "constant" and not lr_warmup
        follows = isinstance(lr_schedule, str) and lr_schedule.startswith("ReduceLROnPlateau")
        self._learns_from_evaluations = follows or swa_trigger is not None
        self._plateau_mode = mode_of(lr_schedule) if follows else None
        self._module = (lambda: None) if module is None else weakref.ref(module)
        self._transposed = _merged.transposed_in(module) if lora else {}
        if module is not None:
            if example is None:
                raise ValueError("a module needs an example batch: Trainer(module, example)")
            self._folder = _Folder()
            self._names = list(module.state_dict())
            name = type(module).__name__
            path = Path(self._folder.name) / f"{name.lower()}.pt2"
            model = self._export(module, example, path, bool(any_length))
        elif any_length:
            raise ValueError("any_length: the file of a program says which sizes are dynamic")
        elif self._job is not None:
            self._job.check_same_file("model", os.fspath(model))
        self._lora_alpha = 8.0 if lora_alpha is None else float(lora_alpha)
        changed = {**_adapters(lora, lora_targets, lora_alpha),
                   "frozen_weights": _word("frozen_weights", frozen_weights)}  # fmt: skip
        self._model = _imported(os.fspath(model), module, changed)
        if self._names is not None:
            self._names += self._model.adapters()
        if workers is None:
            workers = 2 if self._job is None else self._job.training_ranks
        if self._accumulates > 1 and plan is None:
            if micro_batches is None:
                parts = -(-_PARTS_PER_WORKER * workers // self._accumulates)
                micro_batches = self._accumulates * max(1, min(parts, batch_size))
            batch_size *= self._accumulates
        self._batch_size = batch_size
        self._drop_last = bool(drop_last)
        self._epoch = 0
        self._stopped = False
        self._fitting = False
        self._in_epoch = False
        self._told: int | None = None  # the step whose callbacks are running, of tensors
        self._over = False  # max_steps are made, or evaluations improve no more: all ranks know
        self._inside: Inside | None = None
        self._of_dataset: DatasetLoader | None = None  # that was fitted last
        self._loaders: weakref.WeakKeyDictionary[Any, Resumable] = weakref.WeakKeyDictionary()
        self._evaluations = Evaluations()
        self._evaluated: Any = None  # on what
        self._best: tuple[str, int | None] = ("", None)  # in which folder, which step
        self._own_folders: set[str] = set()  # whose checkpoints are this training's
        self._resumed_at = -1
        self._resumed_between_epochs = True
        self._progress = self.rank == 0 and (sys.stderr.isatty() if progress is None else progress)
        loss_name, smoothing, ignored = _loss(loss, label_smoothing, ignore_index)
        self._ignored = ignored
        shared: dict[str, Any] = {
            **self._optimizer.spec,
            "loss": loss_name,
            "label_smoothing": smoothing,
            "ignore_index": ignored,
            "clip_norm": float(clip_norm),
            "seed": seed,
            "threads": threads,
            "device": device,
            "drop_last": bool(drop_last),
            "gradient_groups": _whole("gradient_groups", gradient_groups),
            "ema": float(ema),
            "swa_start": None if swa_start is None else _whole("swa_start", swa_start),
            "swa_trigger": None if swa_trigger is None else _whole("swa_trigger", swa_trigger),
            "lr_warmup": _whole("lr_warmup", lr_warmup),
            "scale_steps": _whole("scale_steps", scale_steps),
        }
        if large_batch:
            if self._schedule is not None or self._optimizer.is_object:
                raise ValueError(
                    "large_batch changes the learning rate, the decay and the momentum of an "
                    "optimizer and a schedule by name; objects of torch.optim have their own"
                )
            shared["large_batch"] = _word("large_batch", large_batch)
            if base_batch_size is not None:
                shared["base_batch_size"] = _whole("base_batch_size", base_batch_size)
        rates: dict[str, Any] = {
            "lr": self._optimizer.first_rate,
            "lr_schedule": _word("lr_schedule", lr_schedule),
            "lr_factor": float(lr_factor),
            "lr_every": _whole("lr_every", lr_every),
            "total_steps": _whole("total_steps", total_steps) or None,
        }
        shared["batch_size"] = batch_size
        request = dict(
            shared, strategy=strategy, workers=workers, micro_batches=micro_batches,
            tensor=tensor or "", sequence_parallel=bool(sequence_parallel),
            straight=bool(straight), weights=weights or "", compensate=compensate or "",
            boundary=boundary or "", sync=sync, precision=precision,
            profile_cache=_cache(profile_cache),
        )
        if self._job is not None:
            asked = {**request, **rates, **changed, "compile": bool(compile),
                     "plan": json.dumps(plan, default=os.fspath)}  # fmt: skip
            for option, value in asked.items():
                self._job.check_same(option, str(value))
        if plan is None:
            text = self._model.plan(
                dict(request, quiet=not self._progress, cuda_graphs=bool(cuda_graphs)), self._job
            )
        elif isinstance(plan, Mapping):
            text = json.dumps(plan)
        else:
            text = Path(plan).read_text()
        may_idle = plan is None and (self._job is None or workers >= self._job.training_ranks)
        self._session = _core.Session(
            self._model, text,
            dict(shared, **rates, cuda_graphs=bool(cuda_graphs), compile=bool(compile)), self._job,
            may_idle,
        )  # fmt: skip
        for note in self._session.compile_notes:
            if self.rank == 0 and note.startswith("warning: "):
                warnings.warn(note.removeprefix("warning: ").strip(), stacklevel=2)
        self._plan: dict[str, Any] = json.loads(self._session.plan)
        used = self._plan_workers()
        if plan is None and strategy != "auto" and used < workers:
            warnings.warn(f"the plan uses {used} of {workers} workers", stacklevel=2)
        if workers > 1 and self.rank == 0 and self._model.note():
            warnings.warn(self._model.note(), stacklevel=2)
        is_cut = self._plan["micro_batches"] > 1
        if is_cut and self._mixes_samples():
            if self._model.returns_loss() and micro_batches is None and plan is None:
                parts = self._plan["micro_batches"]
                raise _core.PenstockError(
                    f"the loss that the model makes itself is no mean over samples: of {parts} "
                    "micro-batches it is another one than of the whole step. micro_batches=1 is "
                    f"what PyTorch computes; micro_batches={parts} takes the mean of their losses"
                    + _advice_on_number(module, example)
                )
            if self.rank == 0:
                warnings.warn(
                    "the model mixes the samples of its batch, so what it learns depends on how a "
                    "step is cut: micro_batches=1 is what PyTorch computes"
                    + (_advice_on_number(module, example) if self._model.returns_loss() else ""),
                    stacklevel=2,
                )
        least = self._plan["micro_batch_size"]
        normalises = module is not None and any(
            isinstance(part, torch.nn.modules.batchnorm._BatchNorm) and part.training
            for part in module.modules()
        )
        if is_cut and self.rank == 0 and normalises and least < _FEW_SAMPLES:
            warnings.warn(
                f"batch norm sees micro-batches of {least} sample{'' if least == 1 else 's'}, of "
                f"which {self._plan['micro_batches']} make a step: with fewer micro_batches, or a "
                "larger batch_size, it learns better",
                stacklevel=2,
            )
        self._inputs: list[str] = [one["name"] for one in self._model.inputs()]

    @classmethod
    def from_plan(
        cls, plan: Mapping[str, Any] | PathLike, model: torch.nn.Module | PathLike,
        example: Example | None = None, **options: Any,
    ) -> "Trainer":  # fmt: skip
        """A trainer that runs a plan, with steps of the size that the plan was made for.

        :param plan: of `penstock.plan`, of `Trainer.plan`, or a file of one
        :param options: of the constructor; ``batch_size`` as well
        """
        document = plan if isinstance(plan, Mapping) else _plan_in(plan)
        try:
            samples = int(document["micro_batch_size"]) * int(document["micro_batches"])
        except (KeyError, TypeError, ValueError):
            raise _core.PenstockError(
                "the plan does not say what a step is: expected 'micro_batch_size' and "
                f"'micro_batches', found {', '.join(map(str, list(document)[:8]))}"
            ) from None
        for name in ("micro_batch_size", "micro_batches"):
            if int(document[name]) < 1:
                raise _core.PenstockError(
                    f"the plan's {name}: expected at least 1, found {document[name]!r:.60}"
                )
        return cls(model, example, plan=document, **{"batch_size": samples, **options})

    def _mixes_samples(self) -> bool:
        """What rank 0 finds, on every rank."""
        found = self.rank == 0 and self._model.mixes_samples()
        return found if self._job is None else self._job.from_first(str(found)) == str(True)

    def _plan_workers(self) -> int:
        return self._session.workers

    # What it is

    def __repr__(self) -> str:
        stages, workers = len(self._plan["stages"]), self._plan_workers()
        return (
            f"<penstock.Trainer of {self._plan.get('model', 'a model')}: {self._plan['strategy']}, "
            f"{stages} stage{'' if stages == 1 else 's'} on {workers} "
            f"worker{'' if workers == 1 else 's'}, {self.steps} steps>"
        )

    @property
    def plan(self) -> dict[str, Any]:
        """The plan: stages with their layers, replicas, predictions."""
        return self._plan

    @property
    def layers(self) -> list[str]:
        """The model's layers, in order; it may be cut between any two."""
        return self._model.layers()

    @property
    def rank(self) -> int:
        """Of this process, from 0; 0 without a job."""
        return 0 if self._job is None else self._job.rank

    @property
    def epochs(self) -> int:
        """Epochs of `fit` so far, those before `resume` included."""
        return self._epoch

    @property
    def steps(self) -> int:
        """Optimiser steps so far; in a callback after a step, those up to that step."""
        return self._session.steps if self._told is None else self._told

    @property
    def lr(self) -> float:
        """The learning rate of the next step."""
        return self._rate_of(self.steps)

    @property
    def classes(self) -> list[str]:
        """The names of the classes 0, 1, ... that are learned; empty: not known."""
        return list(self._classes.names)

    def scale_lr(self, factor: float) -> None:
        """Multiplies the learning rates of the schedule from the next step on; `save` keeps it.

        :param factor: at least 0
        :raises RuntimeError: in a callback of `fit` with tensors, which needs the rates of an epoch
            before it begins
        """
        if not (math.isfinite(factor) and factor >= 0):
            raise ValueError(f"factor: expected a number of at least 0, found {factor}")
        if self._in_epoch:
            raise RuntimeError(
                "scale_lr: this epoch's rates are fixed, since its steps overlap; call it between "
                "epochs, give lr_schedule, or fit a loader"
            )
        self._factor = float(factor)

    # Training

    def step(self, x: Batch, y: torch.Tensor | None = None) -> dict[str, Any]:
        """One optimiser step.

        :param x: the inputs: one tensor, several in the model's order, or by name
        :param y: the targets; None: they are in ``x`` by name, or the model makes its loss itself
        :returns: ``loss``, ``accuracy`` (None where nothing is right or wrong), ``samples``,
            ``targets`` (that count), ``lr``, ``grad_norm`` (None where it is not computed)
        :raises PenstockError: under a strategy that delays weights, which needs a full pipeline
        """
        self._needs_flush()
        inputs, targets = self._split(x, y)
        return self._session.step(inputs, targets, self._rate_of(self.steps))

    def fit(
        self,
        data: Any,
        targets: torch.Tensor | None = None,
        *,
        epochs: int | None = None,
        max_steps: int | None = None,
        batch_size: int | None = None,
        shuffle: bool = True,
        eval_dataset: Any = None,
        eval_every: int | str = "epoch",
        metric: str = "loss",
        early_stopping: EarlyStopping | int | None = None,
        checkpoint: PathLike | None = None,
        save_every: int | str = 0,
        keep_last: int | None = 2,
        keep_best: bool = False,
        callbacks: Iterable[OneCallback] | OneCallback | None = (),
        loggers: Iterable[OneLogger] | OneLogger | None = (),
        log_dir: PathLike | None = None,
        log_every: int = 1,
    ) -> list[dict[str, Any]]:
        """Trains for some epochs.

        :param data: a loader (anything that gives batches, such as torch.utils.data.DataLoader:
            pairs of inputs and targets, or dicts by name), or the inputs of all samples as tensors
            or NumPy arrays, as ``x`` of `step`; or a data set of torch.utils.data or of the package
            datasets: one with a length in the order of tensors, a stream in its own
        :param targets: of all samples, where ``data`` is tensors; None: the last of ``data``, as
            of ``x``
        :param epochs: None: 1, or with ``max_steps`` as many as these take
        :param max_steps: ends when so many steps are made in all, those before `resume` included;
            an epoch that it cuts goes on with the next `fit` of the same data
        :param batch_size: samples of a step, for tensors and data sets; None: that of the plan
        :param shuffle: tensors and data sets with a length are taken in a new order in each epoch,
            the same on every machine
        :param eval_dataset: what `evaluate` takes, evaluated after each epoch: tensors in a tuple,
            a data set or a loader with a length. A schedule ReduceLROnPlateau and ``swa_trigger``
            follow it
        :param eval_every: after so many steps instead, and at the end; "epoch": after each epoch
        :param metric: "loss", "accuracy" or "perplexity": by which evaluations are better or worse
        :param early_stopping: ends after so many evaluations that are no better than the best, or
            as `penstock.EarlyStopping` says
        :param checkpoint: a folder into which `save` saves after each epoch, and at the end;
            evaluations are in its evaluations.json. One that holds a checkpoint is refused unless
            this trainer has saved to it or resumed from it
        :param save_every: and after so many steps. Tensors, a DataLoader of a map-style data set
            and loaders with ``state_dict`` and ``load_state_dict`` (such as those of
            `penstock.data`) go on there; 0 or "epoch": not within an epoch
        :param keep_last: so many of the newest checkpoints stay; None: all
        :param keep_best: the one with the best evaluation stays, too, and the link ``best`` in the
            folder names it. One is saved where an evaluation is the best
        :param callbacks: one, or several: objects of `penstock.Callback`, or functions that are
            called after each step with a dict: ``epoch`` (from 0), ``step`` (from 1, over all
            epochs), and what `step` returns
        :param loggers: of `penstock.loggers`, or functions (numbers, step=...), such as wandb.log
        :param log_dir: a folder that gets files of TensorBoard, log.csv and log.jsonl
        :param log_every: loggers get the mean of so many steps
        :returns: a dict for each epoch: ``epoch``, ``loss``, ``accuracy``, ``samples``,
            ``targets``, ``seconds``, and of an evaluation at its end ``eval_loss`` and
            ``eval_accuracy``
        :raises KeyboardInterrupt: after the steps that have begun

        A callback may call `stop`, `scale_lr` and what only looks (`lr`, `steps`) after a step, and
        everything but `fit` after an epoch, an evaluation or a save.
        """
        if self._fitting:
            raise RuntimeError("fit: it is already running; a callback must not call it")
        self._stopped = self._over = False
        habits = Habits(
            checkpoint=checkpoint, eval_dataset=eval_dataset, eval_every=eval_every,
            save_every=save_every, keep_last=keep_last, keep_best=keep_best,
            early_stopping=early_stopping, metric=metric, max_steps=max_steps, log_every=log_every,
        )  # fmt: skip
        if eval_dataset is not None:
            self._refuse_what_is_no_data(eval_dataset, None, None)
            habits.refuse_mode(self._plateau_mode)
        loggers = () if loggers is None else loggers
        loggers = [loggers] if isinstance(loggers, Logger) or callable(loggers) else loggers
        watch = Watch(
            self, callbacks, [*loggers, *(() if log_dir is None else loggers_in(log_dir))],
            habits.log_every,
        )  # fmt: skip
        epochs = (1 if max_steps is None else None) if epochs is None else _whole("epochs", epochs)
        batch_size = None if batch_size is None else _whole("batch_size", batch_size)
        self._refuse_what_is_no_data(data, targets, batch_size)
        tensors = self._data(data, targets) if self._are_tensors(data, targets) else None
        if is_dataset(data):
            data = self._loader_of(data, batch_size, shuffle)
        if tensors is None:
            self._look_at_loader(data)
            data = self._resumable(data)
        self._needs_places(habits, data if tensors is None else None)
        goes_on = self._take_place(data if tensors is None else None)
        if isinstance(data, DatasetLoader) and data.is_between_epochs:
            data.epoch = self._epoch
        if tensors is None and habits.save_every and self._seen is None:
            raise ValueError(
                "save_every: the state_dict of the loader has other values than those of JSON and "
                f"tensors, which a checkpoint cannot keep: {self._not_kept}"
            )
        fit = Fit(self, habits, watch)

        def run_epoch(summary: Epoch) -> None:
            self._run_epoch(data, tensors, batch_size, shuffle, summary, fit)

        return fit.run(epochs, run_epoch, goes_on)

    def stop(self) -> None:
        """For a callback: `fit` ends after this step (of ranks with a loader: after this epoch;
        under strategies that delay weights: after those that have begun).

        The epoch counts as one of `epochs`, and its checkpoint is saved.
        """
        self._stopped = True

    def evaluate(
        self, data: Any, targets: torch.Tensor | None = None, *, batch_size: int | None = None
    ) -> dict[str, Any]:
        """Loss and accuracy without dropout and without learning; arguments as of `fit`.

        :returns: ``loss``, ``accuracy``, ``samples``
        """
        batch_size = None if batch_size is None else _samples(batch_size)
        self._refuse_what_is_no_data(data, targets, batch_size)
        size = self._batch_size if batch_size is None else batch_size
        if self._classes.names:
            self._classes.learn(classes_of(data), "the data set of the loader")
        if is_dataset(data):
            data = loader_of(data, size, self._session.seed, shuffle=False, drop_last=False)
        if self._are_tensors(data, targets):
            results = [self._session.evaluate(self._data(data, targets), size)]
        else:
            results = [
                self._session.evaluate(self._session.data(*self._split(batch, None)), size)
                for batch in data
            ]
        if not results:
            raise ValueError("the loader gave no batch (a generator can be used once only)")
        return mean_of(results)

    @property
    def evaluations(self) -> list[dict[str, Any]]:
        """Those of `fit` with an ``eval_dataset``, in order, those before `resume` included:
        ``step``, ``loss``, ``accuracy``, ``perplexity``."""
        return [dict(one) for one in self._evaluations.all]

    def predict(self, data: Any, *, batch_size: int | None = None) -> torch.Tensor:
        """The model's outputs, in evaluation mode, as float32 or int64 [samples, ...]. Ranks all
        call it, and all get them.

        :param data: inputs as tensors or arrays (one, several in the model's order, or by name), or
            a loader or a data set as of `fit`; targets behind the inputs are left out
        :param batch_size: samples at a time, for tensors and data sets; None: that of the plan
        :raises PenstockError: the model returns its own loss, or the data do not fit
        """
        size = self._batch_size if batch_size is None else _samples(batch_size)
        if is_dataset(data):
            data = loader_of(data, size, self._session.seed, shuffle=False, drop_last=False)
            batch_size = None
        is_one = _is_tensor(data) or isinstance(data, Mapping)
        if isinstance(data, (tuple, list)) and data and all(map(_is_tensor, data)):
            if len(data) not in (len(self._inputs), len(self._inputs) + 1):
                raise _core.PenstockError(
                    f"the data have {len(data)} tensors, expected {', '.join(self._inputs)}, and "
                    "targets or not; batches of tensors come from a loader, such as iter(data)"
                )
            is_one, data = True, data[: len(self._inputs)]
        if is_one:
            return self._session.predict(self._inputs_of(_tensors(data)), size)
        self._refuse_what_is_no_data(data, None, batch_size)
        results = []
        for batch in data:
            inputs = self._inputs_of(batch)
            results.append(self._session.predict(inputs, max(len(inputs[0]), 1)))
        if not results:
            raise ValueError("the loader gave no batch (a generator can be used once only)")
        return torch.cat(results)

    def _inputs_of(self, batch: Any) -> list[torch.Tensor]:
        """Without targets, where a batch has them."""
        if isinstance(batch, Mapping):
            missing = [name for name in self._inputs if name not in batch]
            if missing:
                raise _core.PenstockError(
                    f"the batch has no '{missing[0]}'; the model takes {', '.join(self._inputs)}"
                )
            batch = [batch[name] for name in self._inputs]
        elif isinstance(batch, (tuple, list)):
            if len(batch) == 2 and isinstance(batch[0], (tuple, list)):
                batch = batch[0]
            batch = batch[: len(self._inputs)]
        else:
            batch = [batch]
        if len(batch) != len(self._inputs):
            raise _core.PenstockError(
                f"the data have {len(batch)} input(s), expected {', '.join(self._inputs)}"
            )
        return [_plain(tensor_of(one)) for one in batch]

    def lr_find(
        self, data: Any, targets: torch.Tensor | None = None, *, lowest: float = 1e-7,
        highest: float = 1.0, steps: int = 100, batch_size: int | None = None,
        folder: PathLike | None = None,
    ) -> dict[str, Any]:  # fmt: skip
        """Looks for a learning rate: makes steps with rates that rise from the lowest to the
        highest, each by the same factor, until the loss is four times the best. What they change
        is taken back.

        :param data: as of `fit`, also ``targets`` and ``batch_size``; it begins anew where it has
            fewer batches
        :param folder: in which the state before is kept for as long as that takes, in a new folder;
            ranks on several machines share it. None: that for temporary files
        :returns: ``suggestion``: the rate at which the running mean of the losses falls fastest, or
            None; ``lrs`` and ``losses`` (running means) to look at
        :raises PenstockError: under a strategy that delays weights
        """
        _find.check(lowest, highest, steps)
        batch_size = None if batch_size is None else _samples(batch_size)
        self._needs_flush()
        if self._fitting:
            raise RuntimeError("lr_find: fit is running; a callback must not call it")
        with contextlib.ExitStack() as stack:
            stack.enter_context(kept_generator())
            before = self._folder_for_search(folder)
            if self.rank == 0:
                stack.callback(shutil.rmtree, before, ignore_errors=True)
            self._session.save(before, _core.Place(), 1, None)

            def step(batch: tuple[list[torch.Tensor], Any], rate: float) -> float:
                return float(self._session.step(*batch, rate)["loss"])

            try:
                return _find.find(
                    step, self._endless(data, targets, batch_size), lowest, highest, steps
                )
            finally:
                self._session.end_epoch()
                self._session.resume(before, self._classes.names)
                self._session.end_epoch()  # nobody removes the folder before all have read it

    def _folder_for_search(self, parent: PathLike | None) -> str:
        """A new one, which rank 0 makes."""
        made = failed = ""
        if self.rank == 0:
            try:
                if parent is not None:
                    Path(parent).mkdir(parents=True, exist_ok=True)
                made = tempfile.mkdtemp(prefix="penstock-find-", dir=parent)
            except OSError as error:
                failed = f"folder: cannot make one in '{parent}': {error.strerror or error}"
        if self._job is not None:
            made, failed = self._job.from_first(made), self._job.from_first(failed)
        if failed:
            raise _core.PenstockError(failed)
        return made

    def _endless(
        self, data: Any, targets: Any, batch_size: int | None
    ) -> Iterator[tuple[list[torch.Tensor], Any]]:
        """Batches of steps, epoch after epoch; a loader is put back where it was."""
        self._refuse_what_is_no_data(data, targets, None)
        size = self._batch_size // self._accumulates if batch_size is None else batch_size
        if self._are_tensors(data, targets):
            inputs, wanted = self._split(_tensors(data), None if targets is None else
                                         tensor_of(targets))  # fmt: skip
            columns = [*inputs, *([] if wanted is None else [wanted])]
            data = torch.utils.data.TensorDataset(*columns)
        if is_dataset(data):
            data = loader_of(data, size, self._session.seed, True, self._drop_last)
        state = data.state_dict() if says_where_it_is(data) else None
        try:
            while True:
                count = 0
                for batch in self._batches(data):
                    count += 1
                    yield batch
                if count == 0:
                    return
        finally:
            if state is not None:
                data.load_state_dict(state)

    def observe(self, value: float, *, rises: bool = False) -> None:
        """Tells a schedule ReduceLROnPlateau and ``swa_trigger`` what an evaluation has found, as
        ``step(value)`` of torch.optim.lr_scheduler.ReduceLROnPlateau does. `save` keeps what they
        make of it; `fit` with a checkpoint saves before. Ranks of a job all call it, with the same
        value.

        :param value: such as the ``loss`` or the ``accuracy`` of `evaluate`
        :param rises: more is better, as of an accuracy; a schedule that says its ``mode`` keeps it
        :raises PenstockError: nothing waits for values
        :raises RuntimeError: in a callback of `fit` with tensors, as `scale_lr`, and of `fit` in a
            job, where only rank 0 has callbacks
        """
        if self._fitting and self._job is not None:
            raise RuntimeError(
                "observe: all ranks of a job call it, and only rank 0 has callbacks; call it "
                "between epochs"
            )
        if self._in_epoch:
            raise RuntimeError(
                "observe: this epoch's rates are fixed, since its steps overlap; call it between "
                "epochs, or fit a loader"
            )
        self._session.observe(float(value), bool(rises))

    # Weights

    @property
    def large_batch(self) -> dict[str, str]:
        """What each rule of the option has set, or why it has set nothing."""
        return self._session.large_batch

    def averaged_state_dict(self, frozen: bool = True) -> dict[str, torch.Tensor]:
        """As `state_dict`, with the mean of the weights (``ema``, ``swa_start``, ``swa_trigger``)
        that `evaluate` takes.

        :raises PenstockError: there is none"""
        return self._named(self._session.weights(averaged=True, frozen=frozen))

    def state_dict(self, frozen: bool = True) -> dict[str, torch.Tensor]:
        """Weights and buffers under the module's own names, as copies. Buffers that are not
        persistent are left out, as in the module's own state dict; `save` has them.

        :param frozen: with the parameters that are not trained (``requires_grad=False``)"""
        return self._named(self._session.weights(frozen=frozen))

    def _named(self, everything: dict[str, torch.Tensor]) -> dict[str, torch.Tensor]:
        if self._names is None:
            return everything
        return {name: everything[name] for name in self._names if name in everything}

    def save_merged(
        self, folder: PathLike, *, base: PathLike | None = None, shard_bytes: int = 5 * 10**9
    ) -> Path:
        """Saves a model that transformers loads, with what adapters (``lora``) have learned added
        to the weights: `AutoModelForCausalLM.from_pretrained(folder)`. Without adapters these are
        the weights as they are. Ranks all call it; rank 0 writes.

        :param folder: a new one; it has its name when it is whole
        :param base: the folder of the model before: its configuration, tokenizer and chat template
            are copied. None: the configuration of the module, if it has one
        :param shard_bytes: a file has no more, unless one tensor is larger
        :raises PenstockError: it cannot be written, or the module has adapters of PEFT, which
            merges them itself
        """
        shard_bytes = _whole("shard_bytes", shard_bytes)
        weights = self.state_dict()
        if not self._model.adapters() and any(".lora_A." in name for name in weights):
            raise _core.PenstockError(
                "the adapters are those of PEFT's module, which merges them itself: "
                "model.load_state_dict(trainer.state_dict()), then "
                "model.merge_and_unload().save_pretrained(folder)"
            )
        failed, own = "", None
        if self.rank == 0:
            try:
                if base is not None and not Path(base).is_dir():
                    raise _core.PenstockError(
                        f"base: expected the folder of a model, found '{base}'"
                    )
                merged = _merged.merge(
                    weights, self._lora_alpha, self._model.has_transposed_adapters(),
                    self._transposed,
                )  # fmt: skip
                config = getattr(self._module(), "config", None)
                config = config if hasattr(config, "save_pretrained") else None
                _merged.write(
                    Path(folder), merged, None if base is None else Path(base), config, shard_bytes
                )
            except Exception as error:  # the other ranks wait
                own = error
                is_ours = isinstance(error, _core.PenstockError)
                failed = str(error) if is_ours else f"rank 0: {type(error).__name__}: {error}"
        failed = failed if self._job is None else self._job.from_first(failed)
        if own is not None:
            raise own
        if failed:
            raise _core.PenstockError(failed)
        return Path(folder)

    def load_state_dict(self, weights: Mapping[str, torch.Tensor]) -> None:
        """Goes on from these weights; the optimiser's state stays.

        :param weights: every name of `state_dict`, and no other; what is frozen may be missing
        :raises PenstockError: a name is missing or unknown, a shape is another, a number is not
            finite, or a value is fixed in the exported model (a frozen parameter) and differs
        """
        if not isinstance(weights, Mapping):
            raise TypeError(f"expected a state dict, found {type(weights).__name__}")
        weights = {name: tensor_of(value).cpu().to_dense() for name, value in weights.items()}
        frozen = set(self._session.frozen)
        before = self._session.weights(frozen=not frozen.isdisjoint(weights))
        now = self._named(before)
        missing = now.keys() - weights - frozen
        for what, names in (("has no", missing), ("has", weights.keys() - now)):
            if names:
                raise _core.PenstockError(
                    f"the state dict {what} '{min(names)}'; expected the {len(now)} names of "
                    "state_dict()"
                )
        for name, value in weights.items():
            is_other = value.is_complex() and not now[name].is_complex()
            numbers = value if value.is_complex() else value.float()
            if is_other or not bool(numbers.isfinite().all()):
                raise _core.PenstockError(f"'{name}': expected finite real numbers")
        fixed = set(self._session.fixed)
        first_of: dict[int | str, str] = {}  # the names of a tied weight are one tensor
        for name, value in now.items():
            if name not in weights:
                continue
            first = first_of.setdefault(value.data_ptr() or name, name)
            same = value if name in fixed else weights[first].to(value.dtype)
            if not torch.equal(same, weights[name].to(value.dtype)):
                raise _core.PenstockError(
                    f"'{name}' cannot take these values: it is fixed in the exported model (a "
                    "parameter without gradient), or another name of a weight has other values"
                )
        self._session.load_weights({**before, **weights})

    def save(self, folder: PathLike, *, keep_last: int = 2) -> Path:
        """Saves a checkpoint: weights, buffers, the optimiser's state, steps and epochs, the factor
        of `scale_lr`, the learning rates of an optimiser of torch.optim, and the names of classes.

        :param folder: the format is that of ``penstock train --checkpoint``, with a ``weights.pt``
            for torch.load. Ranks share it
        :param keep_last: so many of the newest stay in it, and the best of `fit` with ``keep_best``
        :returns: the checkpoint's own folder in it
        :raises PenstockError: it cannot be written, or holds a checkpoint, and this trainer has
            neither saved to it nor resumed from it; what was saved before stays
        """
        if self.rank == 0:
            try:
                self._refuse_others(folder)
            except _core.PenstockError as error:
                self._session.give_up(str(error))
                raise
        place = _core.Place()
        place.epochs = self._epoch
        if self._seen is not None and self._seen.steps == self.steps:
            place.epochs += self._seen.is_over
            place.loader = self._seen.state
        else:  # that of the checkpoint resumed from, which no loader has taken yet
            place.loader = self._loader_place
        if self._inside is not None:
            inside = _core.InsideEpoch()
            inside.steps, inside.batch_size = self._inside.steps, self._inside.batch_size
            inside.samples, inside.shuffle = self._inside.samples, self._inside.shuffle
            place.inside = inside
        place.rate_scale = self._factor
        place.base_rate = self._optimizer.rate if self._optimizer.is_object else None
        place.classes = self._classes.names
        best = self._best_in(folder)
        saved = Path(self._session.save(os.fspath(folder), place, keep_last, best))
        self._own_folders.add(os.path.realpath(folder))
        return saved

    def _refuse_others(self, folder: PathLike) -> None:
        """A folder with checkpoints of another training: in time they would be deleted."""
        if os.path.realpath(folder) in self._own_folders:
            return
        if _core.has_checkpoint(os.fspath(folder)):
            raise _core.PenstockError(
                f"'{folder}' holds a checkpoint that this trainer neither saved nor resumed from: "
                "call resume(folder) first to go on from it, or choose another folder"
            )

    def _best_in(self, folder: PathLike) -> int | None:
        """The step whose checkpoint stays: the best of this training, or that of the link."""
        where, step = self._best
        root = os.path.realpath(folder)
        if step is not None and where == root:
            if step == self.steps or os.path.isdir(os.path.join(root, f"step-{step:09}")):
                return step
        return best_of_link(root)

    def resume(self, folder: PathLike) -> bool:
        """Goes on from the newest checkpoint in a folder, whatever plan it was trained with.

        :param folder: of `save`, of ``fit(checkpoint=...)`` or of the command; or one checkpoint
        :returns: whether there was one; `epochs`, `steps`, `lr` and the seed are then those of the
            checkpoint
        :raises PenstockError: it is damaged, or of another model or optimiser, or of other classes
        """
        if os.path.exists(folder) and not os.path.isdir(folder):
            raise ValueError(f"expected a folder of checkpoints, found the file {folder}")
        place = self._session.resume(os.fspath(folder), self._classes.names)
        if place is None:
            return False
        self._classes.learn(place.classes, "the checkpoint")
        self._own_folders.add(os.path.realpath(_core.folder_of_checkpoints(os.fspath(folder))))
        self._epoch = place.epochs
        self._seen = None
        self._loader_place = place.loader
        inside = place.inside
        self._inside = None
        if inside.steps > 0:
            self._inside = Inside(
                inside.steps, inside.batch_size, inside.samples, inside.shuffle, is_resumed=True
            )
        self._resumed_at = self.steps
        self._resumed_between_epochs = inside.steps == 0 and (
            not place.loader or is_between_epochs(place.loader)
        )
        text = ""
        if self.rank == 0:
            record = Record.of(folder)
            text = record.text
            if record.damage:
                warnings.warn(
                    f"'{record.path}' is damaged ({record.damage}): the evaluations before are not "
                    "known, and the next one counts as the best; fit keeps the file as "
                    f"'{record.aside.name}' when it writes another",
                    stacklevel=2,
                )
        text = text if self._job is None else self._job.from_first(text)
        self._evaluations = Evaluations()
        self._evaluations.take(text, self.steps)
        self._evaluated = None
        self._best = ("", None)
        self._factor = place.rate_scale
        if place.base_rate is not None and self._optimizer.is_object:
            self._optimizer.rate = place.base_rate
        return True

    # Inside

    def _place_now(self) -> tuple[Any, ...]:
        """What a checkpoint would say of where the training is."""
        seen = self._seen
        is_over = seen is not None and seen.steps == self.steps and seen.is_over
        return self.steps, self._epoch + is_over, self._inside, seen and seen.state

    def _refuse_what_is_no_data(self, data: Any, targets: Any, batch_size: int | None) -> None:
        """Common slips, which are said better here than where they do harm."""
        is_loader = not (
            isinstance(data, (torch.Tensor, Mapping, tuple, list)) or _is_array(data)
        )
        if is_dataset(data):
            if targets is not None:
                raise TypeError("targets: expected none beside a data set, whose samples have them")
            return
        if is_loader and not hasattr(data, "__iter__"):
            raise TypeError(f"data: expected tensors, arrays or a loader, found {data!r:.60}")
        if is_loader and targets is not None:
            raise TypeError("targets: expected none beside a loader, whose batches have them")
        if batch_size is not None and not self._are_tensors(data, targets):
            raise ValueError("batch_size: a loader has a batch size of its own")

    def _are_tensors(self, data: Any, targets: Any) -> bool:
        """Of all samples, rather than a loader. Several in a tuple or list are what `step` takes,
        unless each may be a batch."""
        if targets is not None or isinstance(data, Mapping) or _is_tensor(data):
            return True
        if not isinstance(data, (tuple, list)) or not data:
            return False
        parts = len(self._inputs) + self._session.needs_targets
        return parts > 1 and all(_is_tensor(one) for one in data)

    def _look_at_loader(self, loader: Any) -> None:
        """What it tells of its batches before the first one."""
        self._classes.learn(classes_of(loader), "the data set of the loader")
        if not isinstance(loader, torch.utils.data.DataLoader) or not loader.batch_size:
            return
        if loader.drop_last or isinstance(loader.dataset, torch.utils.data.IterableDataset):
            return
        size = loader.batch_size * self._accumulates
        rest = len(loader.sampler) % size if hasattr(loader.sampler, "__len__") else 0
        if rest == 0 or self._delays():
            return
        try:
            self._session.check_step(rest)
        except _core.PenstockError as error:
            raise _core.PenstockError(
                f"the last batch of the loader would have {rest} of {len(loader.sampler)} samples, "
                f"and {error}; drop_last=True of the DataLoader leaves it out"
            ) from None

    def _export(
        self, module: torch.nn.Module, example: Example, path: Path, any_length: bool
    ) -> PathLike:
        """Of a job, rank 0's module: the weights of the others are others."""
        if self._job is None:
            export(module, example, path, any_length=any_length)
            map_to_file(module, path)
            return path
        if self._job.rank != 0:
            self._job.share_file(str(path), "")
            return path
        try:
            export(module, example, path, any_length=any_length)
            map_to_file(module, path)
        except Exception as error:
            with contextlib.suppress(_core.PenstockError):
                self._job.share_file(str(path), str(error) or type(error).__name__)
            raise
        self._job.share_file(str(path), "")
        return path

    def _run_epoch(
        self, data: Any, tensors: Any, batch_size: int | None, shuffle: bool, summary: Epoch,
        fit: Fit,
    ) -> None:  # fmt: skip
        if tensors is not None:
            size = self._batch_size if batch_size is None else batch_size * self._accumulates
            if self._steps_of_epoch(len(tensors), size) == 0:
                raise ValueError(
                    f"drop_last: the {len(tensors)} samples do not fill a step of {size}"
                )
            self._train(tensors, size, shuffle, summary, fit, has_place=True)
        elif self._delays():
            self._fit_whole(data, summary, fit)
        else:
            summary.total = -(-_length(data) // self._accumulates)
            self._fit_steps(data, summary, fit)

    def _steps_of_epoch(self, samples: int, size: int) -> int:
        size = max(size, 1)
        return samples // size if self._drop_last else math.ceil(samples / size)

    def _train(
        self, data: Any, size: int, shuffle: bool, summary: Epoch, fit: Fit, has_place: bool
    ) -> None:
        """The steps of an epoch that are left, in parts between which something is to be done."""
        steps = self._steps_of_epoch(len(data), size)
        at = self._take_inside(Inside(0, size, len(data), shuffle)) if has_place else 0
        summary.total = steps - at
        while at < steps:
            left = fit.habits.steps_left(self.steps)
            count = steps - at if left is None else min(left, steps - at)
            made = self._train_part(data, size, shuffle, summary, at,
                                    None if count == steps - at else count, fit)  # fmt: skip
            at += made
            if has_place and at < steps:
                self._inside = Inside(at, size, len(data), shuffle)
            else:
                self._inside = None
            if self._job is not None:
                self._sync_stop()
            if self._stopped or made < count:
                break
            if at < steps:
                fit.pause(at_end=False)
            else:
                self._over = fit.habits.is_over(self.steps, self._evaluations)
            if self._over or self._stopped:
                break

    def _train_part(
        self, data: Any, size: int, shuffle: bool, summary: Epoch, first: int, count: int | None,
        fit: Fit,
    ) -> int:  # fmt: skip
        """Returns how many steps were made."""
        before = self.steps

        def add(result: dict[str, Any]) -> bool:
            told = before if self._told is None else self._told
            self._told = told + 1  # the session counts when the last step is done
            summary.add(result)
            return not self._stopped

        on_step = add if self.rank == 0 else None
        steps = self._steps_of_epoch(len(data), size) - first if count is None else count
        rates = [self._rate_of(before + k) for k in range(steps)]
        self._in_epoch, self._inside = True, None  # an error leaves no place
        try:
            results = self._session.train(
                data, self._epoch, size, shuffle, on_step, rates, _core.EpochPart(first, count)
            )
        finally:
            self._in_epoch, self._told = False, None

        def tell() -> None:
            for result in results if on_step is None else ():
                add(result)

        try:
            fit.together(tell)
        finally:
            self._told = None
        return self.steps - before

    def _take_inside(self, now: Inside) -> int:
        """The step of the epoch at which tensors go on."""
        inside = self._inside
        if inside is None:
            return 0
        is_same = inside.batch_size == now.batch_size and inside.samples == now.samples
        if is_same and inside.shuffle in (None, now.shuffle):
            return inside.steps
        self._refuse_inside(str(now))
        return 0

    def _refuse_inside(self, found: str) -> None:
        """Other data go on inside of an epoch only where no checkpoint has said so."""
        if self._inside is not None and self._inside.is_resumed:
            raise _core.PenstockError(
                f"the checkpoint lies {self._inside.steps} steps inside of an epoch of "
                f"{self._inside}: expected the same, found {found}"
            )
        self._inside = None

    def _is_inside_epoch(self, summary: Epoch) -> bool:
        """After its last step: whether the next fit goes on in this epoch."""
        if self._inside is not None:
            return True
        return summary.is_cut and self._seen is not None and not self._seen.is_over

    def _sync_stop(self) -> None:
        self._stopped = self._job.from_first(str(self._stopped)) == str(True)

    def _take_evaluations(self, habits: Habits) -> None:
        """They go on for the same data, and those of a checkpoint for the first."""
        if habits.dataset is None:
            return
        if self._evaluated is not None and not is_same_data(self._evaluated, habits.dataset):
            self._evaluations = Evaluations()
        self._evaluated = habits.dataset

    def _loader_of(self, data: Any, batch_size: int | None, shuffle: bool) -> Any:
        """The same as before for the same data set, which goes on where it is."""
        size = self._batch_size // self._accumulates if batch_size is None else batch_size
        if size < 1:
            raise ValueError(f"batch_size: expected at least 1, found {size}")
        made = loader_of(data, size, self._session.seed, shuffle, self._drop_last)
        before = self._of_dataset
        if before is not None and before.dataset is data and before.is_like(made):
            return before
        self._of_dataset = made if isinstance(made, DatasetLoader) else None
        return made

    def _resumable(self, loader: Any) -> Any:
        """A loader that can say where it is."""
        if self._delays() or not resumable(loader):
            return loader
        return self._loaders.setdefault(loader, Resumable(loader))

    def _needs_places(self, habits: Habits, loader: Any) -> None:
        """Checkpoints inside of an epoch have to say where its data are."""
        name = "save_every" if habits.save_every else "keep_best"
        if habits.save_every is None and not (habits.keep_best and habits.eval_every):
            return
        if habits.checkpoint is None or loader is not None and (
            self._delays() or not says_where_it_is(loader)
        ):
            data = getattr(loader, "dataset", None)
            data = getattr(data, "rows", data)
            raise ValueError(
                f"{name}: expected a checkpoint, and tensors, a DataLoader of a data set with a "
                "length, or a loader that has state_dict and load_state_dict, and a strategy that "
                "does not delay weights"
                + ("" if habits.save_every else "; or eval_every='epoch'")
                + (f". {type(data).__name__} has them, but it is the data set, which gives samples "
                   "ahead of the steps: the loader of its batches has to have them, as "
                   "torchdata's StatefulDataLoader does" if says_where_it_is(data) else "")
            )

    def _take_place(self, loader: Any) -> bool:
        """A loader goes on where it was when the checkpoint was saved. Returns whether it does."""
        if loader is not None:
            self._refuse_inside(f"a {type(loader).__name__}")
        place = self._loader_place
        if not place:
            self._see(loader)
            return False
        if not says_where_it_is(loader):
            self._loader_place = ""
            if self.rank == 0:
                warnings.warn(
                    "the checkpoint knows where its loader was, which may be inside of an epoch; "
                    "these data cannot say where they are, and begin anew",
                    stacklevel=3,
                )
            return False
        loader.load_state_dict(state_of(place))
        self._loader_place = ""
        # Asked for its state before it is iterated, it might forget this one.
        self._seen = Seen(self.steps, place, is_over=False)
        return True

    def _see(self, loader: Any) -> None:
        """Remembers where the loader is after the steps so far."""
        self._seen = None
        if not says_where_it_is(loader):
            return
        try:
            state = state_text(loader.state_dict())
        except (TypeError, ValueError, RecursionError) as error:
            self._not_kept = str(error)
            return  # whose it is keeps it
        is_over = self._fitting and bool(getattr(loader, "is_between_epochs", False))
        self._seen = Seen(self.steps, state, is_over)

    def _put_back(self, loader: Any) -> None:
        """A batch that no step has taken comes again."""
        if hasattr(loader, "begin_anew") and not self._over:
            loader.begin_anew()  # as without it: the epoch counts as one, or it has failed
            self._see(loader)
            self._seen = self._seen and self._seen._replace(is_over=False)
            return
        if self._seen is None or self._seen.steps != self.steps:
            return
        try:
            loader.load_state_dict(state_of(self._seen.state))
        except Exception as error:  # the loader's own; the first one is said
            warnings.warn(
                "the batch that no step has taken is lost, since the loader did not go back to "
                f"its own state: {type(error).__name__}: {error}",
                stacklevel=4,
            )

    def _batches(self, loader: Iterable[Batch]) -> Iterator[tuple[list[torch.Tensor], Any]]:
        """Of a step each."""
        parts: list[tuple[list[torch.Tensor], torch.Tensor | None]] = []
        for batch in loader:
            parts.append(self._split(batch, None))
            if len(parts) == self._accumulates:
                yield join_batches(parts, self._inputs, self._ignored)
                parts = []
        if parts:
            yield join_batches(parts, self._inputs, self._ignored)

    def _fit_steps(self, loader: Iterable[Batch], summary: Epoch, fit: Fit) -> None:
        made = False
        try:
            for inputs, targets in self._batches(loader):
                if made and self._ends():
                    summary.is_cut = True  # it was asked for to learn whether there is one
                elif made and not fit.habits.pauses:
                    pass
                elif made:
                    fit.pause(at_end=False)  # the place is that behind the last step
                    summary.is_cut = self._ends()
                if summary.is_cut:
                    self._put_back(loader)
                    break
                before = self.steps
                rate = self._rate_of(self.steps)
                try:
                    result = self._session.step(inputs, targets, rate)
                finally:
                    if self.steps > before:
                        self._see(loader)
                        made = True
                summary.add(result)
                self._over = self._over or self.steps == fit.habits.max_steps
                if self._ends() and (self._seen is None or hasattr(loader, "is_between_epochs")):
                    summary.is_cut = True
                    if hasattr(loader, "begin_anew"):
                        self._put_back(loader)
                    break
        except _core.PenstockError:
            self._put_back(loader)
            raise
        except BaseException as error:  # a loader's or a callback's
            self._put_back(loader)
            self._session.give_up(f"{type(error).__name__}: {error}")
            raise
        self._session.end_epoch()
        if not summary.is_cut:
            self._see(loader)  # behind its end, which not every loader knows at the last batch

    def _ends(self) -> bool:
        """Whether no further step of a loader follows, as all ranks know."""
        return self._over or (self._stopped and self._job is None)

    def _rate_of(self, step: int) -> float:
        if self._schedule is not None:
            return self._factor * self._schedule.rate_of(step)
        if self._optimizer.is_object and self._is_constant:
            return self._factor * self._optimizer.rate
        return self._factor * self._session.rate_of(step)

    def _delays(self) -> bool:
        return self._plan.get("weights", _FLUSH) != _FLUSH

    def _needs_flush(self) -> None:
        if self._delays():
            raise _core.PenstockError(
                f"the strategy {self._plan['strategy']} delays weights over several steps, so "
                "there is no single step: call fit, or choose weights='flush'"
            )

    def _fit_whole(self, loader: Iterable[Batch], summary: Epoch, fit: Fit) -> None:
        """The pipeline stays full over the whole epoch, whose batches are loaded first."""
        batches = list(self._batches(loader))
        if not batches:
            return
        size = batches[0][0][0].shape[0]
        sizes = [inputs[0].shape[0] for inputs, _ in batches]
        if any(one != size for one in sizes[:-1]) or sizes[-1] > size:
            raise _core.PenstockError(
                f"the batches have {sorted(set(sizes))} samples; expected one size (the last batch "
                "may be smaller) under a strategy that delays weights"
            )
        wrong = [inputs for inputs, _ in batches if len(inputs) != len(self._inputs)]
        if wrong:
            raise _core.PenstockError(
                f"a batch has {len(wrong[0])} input(s), expected {len(self._inputs)}: the model "
                f"and its loss take {self._session.sample}"
            )
        columns = list(zip(*(batch[0] for batch in batches)))
        if self._session.needs_targets:
            columns.append(tuple(batch[1] for batch in batches))
        if any(len({one.shape[1:] for one in column}) > 1 for column in columns):
            data = self._session.joined([self._session.data(*batch) for batch in batches])
        else:
            targets = [batch[1] for batch in batches]
            data = self._session.data(
                [torch.cat(parts) for parts in zip(*(batch[0] for batch in batches))],
                None if targets[0] is None else torch.cat(targets),
            )
        self._train(data, size, False, summary, fit, has_place=False)
        self._see(loader)

    def _data(self, x: Any, y: Any) -> Any:
        inputs, targets = self._split(_tensors(x), None if y is None else tensor_of(y))
        return self._session.data(inputs, targets)

    def _split(
        self, batch: Batch, targets: torch.Tensor | None
    ) -> tuple[list[torch.Tensor], torch.Tensor | None]:
        """Inputs in the model's order, and targets."""
        if targets is None and isinstance(batch, (tuple, list)) and self._session.needs_targets:
            if len(batch) < 2:
                raise _core.PenstockError(
                    f"expected a batch of inputs and targets, found {len(batch)} part(s); the "
                    f"model and its loss take {self._session.sample}"
                )
            *rest, targets = batch
            batch = rest[0] if len(rest) == 1 else rest
        if isinstance(batch, Mapping):
            missing = [name for name in self._inputs if name not in batch]
            if missing:
                raise _core.PenstockError(
                    f"the batch has no '{missing[0]}'; the model and its loss take "
                    f"{self._session.sample}; the batch has {', '.join(map(str, batch))}"
                )
            inputs = [batch[name] for name in self._inputs]
            if targets is None and self._session.needs_targets:
                found = [
                    name for name in _TARGETS if name in batch and name not in self._inputs
                ]
                if len(found) > 1:
                    raise _core.PenstockError(
                        f"the batch has both '{found[0]}' and '{found[1]}', which might be targets"
                    )
                targets = batch[found[0]] if found else None
                inputs_and_targets = [*self._inputs, *found]
            else:
                inputs_and_targets = self._inputs
            if TARGET_NUMBER in batch:
                raise _core.PenstockError(
                    f"the batch has '{TARGET_NUMBER}', which is counted here, over all labels of "
                    "the step: leave it out of the batch"
                )
            unknown = [str(name) for name in batch if name not in inputs_and_targets]
            if unknown:
                raise _core.PenstockError(
                    f"the batch has '{unknown[0]}'; the model and its loss take "
                    f"{self._session.sample}, targets as {', '.join(_TARGETS)}"
                )
        elif isinstance(batch, (tuple, list)):
            inputs = list(batch)
        else:
            inputs = [batch]
        tensors = [_plain(tensor_of(one)) for one in inputs]
        return tensors, None if targets is None else _plain(tensor_of(targets))


def _adapters(rank: Any, targets: Any, alpha: Any) -> dict[str, Any]:
    """The options of a model with adapters."""
    if rank is None:
        if targets is not None or alpha is not None:
            raise ValueError("lora_targets and lora_alpha say what adapters lora=RANK adds")
        return {}
    if targets is not None and not isinstance(targets, str):
        targets = ",".join(_word("lora_targets", one) for one in targets)
    alpha = 8.0 if alpha is None else float(alpha)
    return {"lora": _whole("lora", rank), "lora_targets": targets, "lora_alpha": alpha}


def _plan_in(file: PathLike) -> Mapping[str, Any]:
    try:
        document = json.loads(Path(file).read_text(encoding="utf-8"))
    except OSError as error:
        raise _core.PenstockError(f"cannot read the plan '{file}': {error.strerror}") from None
    except (ValueError, RecursionError) as error:
        raise _core.PenstockError(
            f"the plan '{file}' is no JSON, which `penstock plan` writes with --out: {error}"
        ) from None
    if not isinstance(document, Mapping):
        raise _core.PenstockError(
            f"the plan '{file}': expected an object with stages, found a {type(document).__name__}"
        )
    return document


def _imported(path: str, module: torch.nn.Module | None, options: Mapping[str, Any]) -> Any:
    """The model in a file; what is wrong with a module's is said of the module."""
    try:
        return _core.Model(path, dict(options))
    except _core.PenstockError as error:
        if module is None:
            raise
        said = str(error).replace(path, type(module).__name__)
        hint = "" if "batched_mm" in said else hint_of_experts(module)
        raise _core.PenstockError(said + hint) from None


_job: list[tuple[dict[str, str | None], Any]] = []


def _join(**how: str | None) -> Any:
    """The job of this process, which is joined once; None: it is no rank of one."""
    if not _job:
        _job.append((how, _core.Job.join(how["fabric"], how["tls"])))
    joined, job = _job[0]
    for name, found in how.items():
        if job is not None and joined[name] != found:
            raise ValueError(
                f"{name}: the ranks of this program are joined by '{joined[name]}' already, "
                f"found '{found}'"
            )
    return job


def _advice_on_number(module: torch.nn.Module | None, example: Any) -> str:
    """For a loss that is no mean over targets, of a model that may make it one."""
    if module is None or not isinstance(example, Mapping) or TARGET_NUMBER in example:
        return ""
    try:
        taken = inspect.signature(module.forward).parameters
    except (TypeError, ValueError):
        return ""
    # Models of Hugging Face hand it on to their loss_function.
    hands_on = hasattr(module, "loss_function") and any(
        one.kind == inspect.Parameter.VAR_KEYWORD for one in taken.values()
    )
    if TARGET_NUMBER not in taken and not hands_on:
        return ""
    return (
        f". The model takes {TARGET_NUMBER}: with it in the example (any number) its loss is the "
        "mean over the targets of the whole step, however it is cut"
    )


def _is_array(value: Any) -> bool:
    return hasattr(value, "__array__") and not isinstance(value, torch.Tensor)


def _is_tensor(value: Any) -> bool:
    return isinstance(value, torch.Tensor) or _is_array(value)


def _length(loader: Any) -> int:
    """Batches, for the bar; 0: unknown, as of a DataLoader of an IterableDataset."""
    try:
        return len(loader)
    except TypeError:
        return 0


def _plain(tensor: torch.Tensor) -> torch.Tensor:
    """In one piece; what cannot be is refused later, with the input's name."""
    return tensor.contiguous() if tensor.layout == torch.strided else tensor


def _tensors(value: Any) -> Any:
    if isinstance(value, Mapping):
        return {name: tensor_of(one) for name, one in value.items()}
    if isinstance(value, (tuple, list)):
        return [tensor_of(one) for one in value]
    return tensor_of(value)


def _whole(name: str, value: Any) -> int:
    try:
        number = operator.index(value)
    except TypeError:
        raise TypeError(f"{name}: expected a whole number, found {value!r:.60}") from None
    if not 0 <= number < 2**63:
        limit = "at least 0" if number < 0 else "less than 2**63"
        raise ValueError(f"{name}: expected {limit}, found {number}")
    return number


def _samples(batch_size: Any) -> int:
    number = _whole("batch_size", batch_size)
    if number < 1:
        raise ValueError(f"batch_size: expected at least 1, found {number}")
    return number


def _word(name: str, value: Any, words: Sequence[str] = ()) -> str:
    if not isinstance(value, str) or (words and value not in words):
        expected = f"one of {', '.join(words)}" if words else "a name"
        raise ValueError(f"{name}: expected {expected}, found {value!r:.60}")
    return value


def _cache(value: Any) -> str:
    if value is None or value is True:
        return ""
    if value is False:
        return "off"
    if not isinstance(value, str | os.PathLike):
        raise TypeError(f"profile_cache: expected a folder, \"new\", or False, found {value!r:.60}")
    return os.fspath(value)


def _loss(loss: Any, smoothing: float | None, ignored: int | None) -> tuple[str, float, int]:
    if isinstance(loss, torch.nn.Module) and not (smoothing is ignored is None):
        raise ValueError("label_smoothing and ignore_index are given twice: the loss has its own")
    smoothing = 0.0 if smoothing is None else smoothing
    ignored = -100 if ignored is None else ignored
    if loss is None or isinstance(loss, str):
        try:
            return loss or "", float(smoothing), operator.index(ignored)
        except TypeError:
            raise TypeError(
                f"ignore_index: expected a whole number, found {ignored!r:.60}"
            ) from None
    kind = loss if isinstance(loss, type) else type(loss)
    if kind not in _LOSSES:
        raise ValueError(
            "loss: expected 'cross-entropy', 'mean-squared-error', 'binary-cross-entropy', "
            f"'model', or one of torch.nn's {', '.join(one.__name__ for one in _LOSSES)}, found "
            f"{loss!r}; a model may return a loss of its own"
        )
    if isinstance(loss, torch.nn.Module):
        if any(getattr(loss, name, None) is not None for name in ("weight", "pos_weight")):
            raise ValueError(f"loss: weights of classes are not supported: {loss!r}")
        if loss.reduction != "mean":
            raise ValueError(f"loss: expected reduction='mean', found {loss.reduction!r}")
        smoothing = getattr(loss, "label_smoothing", smoothing)
        ignored = getattr(loss, "ignore_index", ignored)
    return _LOSSES[kind], float(smoothing), ignored
