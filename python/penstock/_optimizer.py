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

_ROWS = {name: (title, in_torch, usual) for name, title, in_torch, usual in _core.optimizers()}
#: Those that this torch.optim has.
_CLASSES = {
    name: getattr(torch.optim, title)
    for name, (title, in_torch, _) in _ROWS.items()
    if in_torch and hasattr(torch.optim, title)
}
#: "'SGD', 'Adam' or 'AdamW'"
_TITLES = " or ".join(", ".join(f"'{title}'" for title, _, _ in _ROWS.values()).rsplit(", ", 1))
#: What torch.optim calls the core's parameters, where that is another word.
_CORE_NAMES = {
    "lr_decay": "rate_decay",
    "initial_accumulator_value": "initial_accumulator",
    "lambd": "lambda",
    "t0": "average_from",
    "d": "clip",
    "ns_steps": "iterations",
}
#: What has no name of its own, as a function of the core's optimiser and the value.
_CORE_VALUES: dict[str, Callable[[str, Any], dict[str, float]]] = {
    "betas": lambda name, value: {"beta1": float(value[0]), "beta2": float(value[1])},
    "eps": lambda name, value: _epsilons(name, value),
    "alpha": lambda name, value: {"power" if name == "asgd" else "alpha": float(value)},
    "beta2_decay": lambda name, value: {"decay_power": -float(value)},
    "adjust_lr_fn": lambda name, value: {"match_rms": float(value == "match_rms_adamw")},
}
#: What an optimiser of torch.optim must have as it is there.
_MUST_BE = {"dampening": 0, "ns_coefficients": (3.4445, -4.7750, 2.0315)}
#: What all groups of an optimiser must agree on.
_OF_ALL = {"momentum", "nesterov", "betas", "eps", "amsgrad", "maximize", "centered",
           "momentum_decay", "decoupled_weight_decay", *_CORE_NAMES, *_CORE_VALUES}  # fmt: skip
#: By name; 0 for others.
_DECAYS = {"adamw": 0.01, "muon": 0.1}
#: Two rates are in the same proportion.
_CLOSE = 1e-9


class Optimizer:
    """A name with arguments, or an object of torch.optim, whose learning rates count as they are
    when a step or an epoch begins. Also a pair: a Muon for matrices, an AdamW for the rest.

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
        objects = _objects(optimizer)
        self._given = objects
        #: What is behind the name in a text, such as ",amsgrad".
        self._more = ""
        if objects:
            if given:
                raise ValueError(f"{min(given)}: the optimizer's own counts; set it there")
            self.name = _name(type(objects[0]))
            groups = [group for one in objects for group in one.param_groups]
        else:
            self.name, self._more = _split(optimizer)
            _check_given(self.name, given)
            groups = [{"lr": 1e-3, "weight_decay": _DECAYS.get(self.name, 0.0), **given}]
        if groups[0].get("decoupled_weight_decay"):
            self.name = {"adam": "adamw", "nadam": "nadamw"}.get(self.name, self.name)
        self._groups = groups
        #: Groups of a Muon's pair, an AdamW.
        self._of_adamw = [i > 0 for i, one in enumerate(objects) for _ in one.param_groups]
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
        return bool(self._given)

    @property
    def first_rate(self) -> float:
        """The learning rate before any schedule, of the group with the largest."""
        return self._rates[self._main]

    @property
    def rate(self) -> float:
        """The learning rate now, of that group; the others' are in proportion to it."""
        rates = [float(group["lr"]) for group in self._groups]
        if self._given and self._all_but_rates() != self._fixed:
            raise ValueError(
                f"the optimizer changed: {_difference(self._fixed, self._all_but_rates())}; only "
                "learning rates can change"
            )
        return self._common(rates)

    @rate.setter
    def rate(self, rate: float) -> None:
        for group, factor in zip(self._groups, self._factors):
            group["lr"] = rate * factor

    def schedule(self, make: MakeSchedule) -> "Schedule | str":
        """The rates of a schedule of torch.optim.lr_scheduler that this optimiser begins; of a
        ReduceLROnPlateau, which follows evaluations, the text that says the same."""
        # The schedule sees another optimiser with the same groups.
        groups = [
            {**fixed, "lr": rate, "params": [torch.nn.Parameter(torch.zeros(1))]}
            for fixed, rate in zip(self._fixed, self._rates)
        ]
        # Its class, so that a schedule finds the momenta there; Muon's takes matrices alone.
        like = torch.optim.SGD if self.name == "muon" else _CLASSES.get(self.name, torch.optim.SGD)
        own = like(groups, lr=self._rates[0])
        scheduler = make(own)
        if not isinstance(scheduler, (LRScheduler, ReduceLROnPlateau)):
            raise TypeError(
                "lr_schedule: expected a function that makes a schedule of "
                f"torch.optim.lr_scheduler, found {type(scheduler).__name__}"
            )
        if getattr(scheduler, "optimizer", own) is not own:
            raise ValueError(
                "lr_schedule: the schedule is one of another optimizer: make it for the optimizer "
                "that the function is called with"
            )
        if isinstance(scheduler, ReduceLROnPlateau):
            return self._plateau(scheduler)
        return Schedule(own, scheduler, self._common)

    def _plateau(self, scheduler: ReduceLROnPlateau) -> str:
        if scheduler.last_epoch > 0:
            raise ValueError(
                f"lr_schedule: the ReduceLROnPlateau has seen {scheduler.last_epoch} value(s) "
                "already; expected a new one"
            )
        floors = [float(one) for one in scheduler.min_lrs]
        floor = floors[self._main]
        if any(abs(one - floor * by) > _CLOSE * floor for one, by in zip(floors, self._factors)):
            raise ValueError(
                f"lr_schedule: min_lr is {floors} for groups with the rates {self._rates}: rates "
                "of groups stay in proportion, so expected floors in the same proportion"
            )
        values = {
            "mode": scheduler.mode, "factor": scheduler.factor, "patience": scheduler.patience,
            "threshold": scheduler.threshold, "threshold_mode": scheduler.threshold_mode,
            "cooldown": scheduler.cooldown, "min_lr": floor, "eps": scheduler.eps,
        }  # fmt: skip
        return "ReduceLROnPlateau" + "".join(f",{key}={one}" for key, one in values.items())

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
        for is_adamw in sorted(set(self._of_adamw) or {False}):
            own = [one for one, other in zip(self._groups, self._of_adamw or [False])
                   if other == is_adamw]  # fmt: skip
            for group in own:
                _check_group(group, own[0])
        if any(_has_stepped(one) for one in self._given):
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
        values = dict(_ROWS[self.name][2])
        if self.name == "sgd":
            values["momentum"] = 0.0  # as in torch.optim
        values.update(_core_values(self.name, self._groups[0]))
        if any(self._of_adamw):
            rest = _core_values("adamw", self._groups[self._of_adamw.index(True)])
            for flag in "amsgrad", "maximize":
                if rest.pop(flag, False):
                    raise ValueError(f"optimizer: beside a Muon, {flag}=True is not supported")
            values.update(rest)
        more = "".join(f",{key}={_text(value)}" for key, value in values.items())
        spec: dict[str, Any] = {
            "optimizer": self.name + more + self._more,
            "weight_decay": float(self._groups[0]["weight_decay"]),
        }
        for own in "momentum", "nesterov":
            if own in values:
                spec[own] = values[own]
        if not self._given:
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
                by_adamw,
            )
            for group, factor, by_adamw in zip(self._groups, self._factors, self._of_adamw)
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


def _text(value: bool | float) -> str:
    return ("yes" if value else "no") if isinstance(value, bool) else repr(float(value))


def _title(name: str) -> str:
    return _ROWS[name][0]


def _titles_with(parameter: str) -> str:
    return ", ".join(title for title, _, usual in _ROWS.values() if parameter in usual)


def _epsilons(name: str, value: Any) -> dict[str, float]:
    if name == "muon":
        return {"norm_epsilon": float(value)}
    if not isinstance(value, (tuple, list)):
        return {"epsilon": float(value)}
    first, scale = value
    own = torch.finfo(torch.float32).eps if first is None else float(first)
    return {"epsilon": own, "scale_epsilon": float(scale)}


def _core_values(name: str, group: Mapping[str, Any]) -> dict[str, Any]:
    """The core's parameters of a group of torch.optim."""
    usual = _ROWS[name][2]
    values: dict[str, Any] = {}
    for key, value in group.items():
        if key in _CORE_VALUES:
            values.update(_CORE_VALUES[key](name, value))
        elif key in _CORE_NAMES or key in usual or key == "maximize":
            values[_CORE_NAMES.get(key, key)] = value
    flags = {"nesterov", "amsgrad", "centered", "maximize", "match_rms"}
    return {
        key: bool(value) if key in flags else float(value)
        for key, value in values.items()
        if key in usual or key == "maximize"
    }


def _check_given(name: str, given: Mapping[str, Any]) -> None:
    own = _ROWS[name][2]
    cores = {"momentum": "momentum", "nesterov": "nesterov", "betas": "beta1", "eps": "epsilon"}
    for key, core in cores.items():
        if key not in given or core in own or (key == "nesterov" and not given[key]):
            continue
        has = f"; {_title(name)} has betas" if key == "momentum" and "beta1" in own else ""
        raise ValueError(f"{key} is for {_titles_with(core)}, not {_title(name)}{has}")


def _check_group(group: Mapping[str, Any], first: Mapping[str, Any]) -> None:
    for name, value in group.items():
        if name in _MUST_BE and value != _MUST_BE[name]:
            raise ValueError(f"optimizer: {name}={value!r} is not supported")
        if name in _OF_ALL and value != first.get(name):
            raise ValueError(
                f"optimizer: groups may differ in lr and weight_decay, but {name} is "
                f"{first.get(name)!r} and {value!r}"
            )
        if name == "betas" and len(value) != 2:
            raise ValueError(f"betas: expected two numbers, found {value!r:.60}")


def _has_stepped(optimizer: torch.optim.Optimizer) -> bool:
    """Adagrad has its sums before its first step."""
    return any(float(state.get("step", 1)) > 0 for state in optimizer.state.values())


def _objects(optimizer: Any) -> list[torch.optim.Optimizer]:
    """One, or a Muon and an AdamW; none: it is a name."""
    if isinstance(optimizer, torch.optim.Optimizer):
        return [optimizer]
    if not isinstance(optimizer, (list, tuple)):
        return []
    names = [_name(type(one)) for one in optimizer]
    if names != ["muon", "adamw"]:
        raise ValueError(
            "optimizer: a list is a Muon for matrices and an AdamW for the other parameters, "
            f"found {', '.join(map(_title, names)) or 'nothing'}"
        )
    return list(optimizer)


def _split(optimizer: Any) -> tuple[str, str]:
    """A name, and what follows it in a text such as "adam,amsgrad"."""
    if not isinstance(optimizer, str):
        return _name(optimizer), ""
    name, comma, more = optimizer.partition(",")
    return _name(name), comma + more


def _name(optimizer: Any) -> str:
    if isinstance(optimizer, type):
        for name, one in _CLASSES.items():
            if one is optimizer:
                return name
    elif isinstance(optimizer, str) and optimizer.lower() in _ROWS:
        return optimizer.lower()
    raise ValueError(
        f"optimizer: expected {_TITLES}, or an object of one of these classes of "
        f"torch.optim, found {optimizer!r:.80}"
    )
