"""Optimisers and learning rates: what torch.optim calls them, and what the core takes."""

from __future__ import annotations

import json
import math
from typing import Any, Callable, Mapping, Sequence, Union

import torch
from torch.optim.lr_scheduler import LRScheduler, ReduceLROnPlateau

from penstock import _core

#: Makes a schedule of torch.optim.lr_scheduler for an optimiser.
MakeSchedule = Callable[[torch.optim.Optimizer], LRScheduler]

_CLASSES = {name: getattr(torch.optim, title) for name, title, _ in _core.optimizers()}
#: What each has beside learning rate and weight decay, by the core's names.
_PARAMETERS = {name: set(parameters) for name, _, parameters in _core.optimizers()}
#: "'SGD', 'Adam' or 'AdamW'"
_TITLES = " or ".join(", ".join(f"'{one.__name__}'" for one in _CLASSES.values()).rsplit(", ", 1))
#: What an optimiser of torch.optim must not ask for, and what all its groups must agree on.
_MUST_BE_OFF = ("dampening", "amsgrad", "maximize")
_OF_ALL = {"momentum", "nesterov", "betas", "eps"}
#: Two rates are in the same proportion.
_CLOSE = 1e-9


class Optimizer:
    """A name with arguments, or an object of torch.optim, whose learning rates count as they are
    when a step or an epoch begins.

    `spec` is what the core takes.
    """

    def __init__(
        self,
        optimizer: Any,
        module: torch.nn.Module | None,
        *,
        lr: float | None,
        momentum: float | None,
        nesterov: bool | None,
        weight_decay: float | None,
        betas: Sequence[float] | None,
        eps: float | None,
    ) -> None:
        given = {"lr": lr, "momentum": momentum, "nesterov": nesterov, "betas": betas, "eps": eps,
                 "weight_decay": weight_decay}  # fmt: skip
        given = {name: value for name, value in given.items() if value is not None}
        self._given: torch.optim.Optimizer | None = None
        if isinstance(optimizer, torch.optim.Optimizer):
            if given:
                raise ValueError(f"{min(given)}: the optimizer's own counts; set it there")
            self.name = _name(type(optimizer))
            self._given = optimizer
            groups = optimizer.param_groups
        else:
            self.name = _name(optimizer)
            own = _PARAMETERS[self.name]
            if momentum is not None and "momentum" not in own:
                raise ValueError(f"momentum is for SGD; {_title(self.name)} has betas")
            if nesterov and "nesterov" not in own:
                raise ValueError("nesterov is for SGD")
            for name, value, core in ("betas", betas, "beta1"), ("eps", eps, "epsilon"):
                if value is not None and core not in own:
                    raise ValueError(f"{name}: for Adam and AdamW, not {_title(self.name)}")
            groups = [{"lr": 1e-3, "weight_decay": 0.01 if self.name == "adamw" else 0.0, **given}]
        if self.name == "adam" and groups[0].get("decoupled_weight_decay"):
            self.name = "adamw"
        self._groups = groups
        self._check_groups()
        # A schedule that began may have changed the rates.
        self._rates = [float(group.get("initial_lr", group["lr"])) for group in groups]
        for rate in self._rates:
            if not (math.isfinite(rate) and rate >= 0):
                raise ValueError(f"lr: expected a number of at least 0, found {rate}")
        #: The group whose rate is the trainer's, and the factors of all.
        self._main = self._rates.index(max(self._rates))
        largest = self._rates[self._main]
        self._factors = [rate / largest if largest else 1.0 for rate in self._rates]
        self._fixed = self._all_but_rates()
        self.spec = self._specify(module)

    @property
    def is_object(self) -> bool:
        """Of torch.optim, whose rates may change."""
        return self._given is not None

    @property
    def first_rate(self) -> float:
        """The learning rate before any schedule, of the group with the largest."""
        return self._rates[self._main]

    @property
    def rate(self) -> float:
        """The learning rate now, of that group; the others' are in proportion to it."""
        rates = [float(group["lr"]) for group in self._groups]
        if self._given is not None and self._all_but_rates() != self._fixed:
            raise ValueError(
                f"the optimizer changed: {_difference(self._fixed, self._all_but_rates())}; only "
                "learning rates can change"
            )
        return self._common(rates)

    @rate.setter
    def rate(self, rate: float) -> None:
        for group, factor in zip(self._groups, self._factors):
            group["lr"] = rate * factor

    def schedule(self, make: MakeSchedule) -> "Schedule":
        """The rates of a schedule of torch.optim.lr_scheduler that this optimiser begins."""
        # The schedule sees another optimiser with the same groups.
        groups = [
            {**fixed, "lr": rate, "params": [torch.nn.Parameter(torch.zeros(1))]}
            for fixed, rate in zip(self._fixed, self._rates)
        ]
        own = _CLASSES[self.name](groups, lr=self._rates[0])
        scheduler = make(own)
        if not isinstance(scheduler, LRScheduler) or isinstance(scheduler, ReduceLROnPlateau):
            raise TypeError(
                "lr_schedule: expected a function that makes a schedule of "
                f"torch.optim.lr_scheduler, whose rates depend on the step alone, found "
                f"{type(scheduler).__name__}"
            )
        if getattr(scheduler, "optimizer", own) is not own:
            raise ValueError(
                "lr_schedule: the schedule is one of another optimizer: make it for the optimizer "
                "that the function is called with"
            )
        return Schedule(own, scheduler, self._common)

    def _common(self, rates: Sequence[float]) -> float:
        """The main group's rate; the others' are still in proportion to it."""
        main = rates[self._main]
        for rate, factor in zip(rates, self._factors):
            if abs(rate - main * factor) > _CLOSE * main:
                raise ValueError(
                    f"learning rates of groups are to stay in proportion: they were "
                    f"{self._rates}, now they are {list(rates)}"
                )
        return main

    def _check_groups(self) -> None:
        first = self._groups[0]
        for group in self._groups:
            for name, value in group.items():
                if name in _MUST_BE_OFF and value:
                    raise ValueError(f"optimizer: {name}={value!r} is not supported")
                if name in _OF_ALL and value != first.get(name):
                    raise ValueError(
                        f"optimizer: groups may differ in lr and weight_decay, but {name} is "
                        f"{first.get(name)!r} and {value!r}"
                    )
                if name == "betas" and len(value) != 2:
                    raise ValueError(f"betas: expected two numbers, found {value!r:.60}")
        if self._given is not None and self._given.state:
            raise ValueError(
                "optimizer: it has made steps already, and what it keeps of them would be lost; "
                "expected a new one"
            )

    def _all_but_rates(self) -> list[dict[str, Any]]:
        return [
            {name: value for name, value in group.items()
             if name in _OF_ALL or name == "weight_decay"}
            for group in self._groups
        ]  # fmt: skip

    def _specify(self, module: torch.nn.Module | None) -> dict[str, Any]:
        first = self._groups[0]
        betas = first.get("betas", (0.9, 0.999))
        spec: dict[str, Any] = {
            "optimizer": self.name,
            "momentum": float(first.get("momentum", 0)),
            "nesterov": bool(first.get("nesterov", False)),
            "weight_decay": float(first["weight_decay"]),
            "beta1": float(betas[0]),
            "beta2": float(betas[1]),
            "eps": float(first.get("eps", 1e-8)),
        }
        if self._given is None:
            return spec
        if module is None:
            raise ValueError(
                "optimizer: an object of torch.optim knows a module's parameters, not a file's; "
                f"expected {_TITLES}"
            )
        names: dict[int, list[str]] = {}
        for name, parameter in module.named_parameters(remove_duplicate=False):
            names.setdefault(id(parameter), []).append(name)
        spec["groups"] = [
            (
                [name for one in group["params"] for name in names.get(id(one), [])],
                factor,
                float(group["weight_decay"]),
            )
            for group, factor in zip(self._groups, self._factors)
        ]
        in_groups = {id(one) for group in self._groups for one in group["params"]}
        for name, parameter in module.named_parameters():
            if parameter.requires_grad and id(parameter) not in in_groups:
                raise ValueError(
                    f"optimizer: it does not have the parameter '{name}' of the module, which "
                    "would be trained; requires_grad_(False) leaves it as it is"
                )
        return spec


class Schedule:
    """Learning rates by step, which are those of a schedule of torch.optim.lr_scheduler."""

    def __init__(
        self,
        optimizer: torch.optim.Optimizer,
        scheduler: LRScheduler,
        common: Callable[[Sequence[float]], float],
    ) -> None:
        self._optimizer = optimizer
        self._scheduler = scheduler
        self._common = common
        self._first = _momenta(optimizer)
        optimizer.step()  # which a scheduler asks for before its own first step
        self._known = [self._rate()]

    def rate_of(self, step: int) -> float:
        """:param step: from 0"""
        while len(self._known) <= step:
            self._scheduler.step()
            self._known.append(self._rate())
        return self._known[step]

    def _rate(self) -> float:
        momenta = _momenta(self._optimizer)
        if momenta != self._first:
            raise ValueError(
                "lr_schedule: it changes the momentum (betas), too, which is not supported: "
                "cycle_momentum=False leaves it as it is"
            )
        return self._common([float(group["lr"]) for group in self._optimizer.param_groups])


def _momenta(optimizer: torch.optim.Optimizer) -> str:
    groups: list[Mapping[str, Any]] = optimizer.param_groups
    return json.dumps([[group.get("momentum"), group.get("betas")] for group in groups])


def _difference(before: list[dict[str, Any]], after: list[dict[str, Any]]) -> str:
    if len(before) != len(after):
        return f"it had {len(before)} group(s) of parameters and has {len(after)}"
    for old, new in zip(before, after):
        for name, value in new.items():
            if old.get(name) != value:
                return f"{name} was {old.get(name)!r} and is {value!r}"
    return "its groups are others"


def _title(name: str) -> str:
    return _CLASSES[name].__name__


def _name(optimizer: Any) -> str:
    if isinstance(optimizer, type):
        for name, one in _CLASSES.items():
            if one is optimizer:
                return name
    elif isinstance(optimizer, str) and optimizer.lower() in _CLASSES:
        return optimizer.lower()
    raise ValueError(
        f"optimizer: expected {_TITLES}, or an object of one of these classes of "
        f"torch.optim, found {optimizer!r:.80}"
    )
