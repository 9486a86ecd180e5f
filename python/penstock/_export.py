"""From a module to a file that Penstock reads."""

from __future__ import annotations

import contextlib
import inspect
import os
from pathlib import Path
from typing import Any, Iterator, Mapping, Sequence, Union

import torch

PathLike = Union[str, "os.PathLike[str]"]
Example = Union[torch.Tensor, Sequence[Any], Mapping[str, Any]]


def _arguments(example: Example) -> tuple[tuple[Any, ...], dict[str, Any]]:
    if isinstance(example, torch.Tensor):
        return (example,), {}
    if isinstance(example, Mapping):
        return (), dict(example)
    return tuple(example), {}


def _tensors(example: Any) -> Example:
    """The same with tensors in the place of arrays."""

    def tensor(value: Any) -> Any:
        return torch.as_tensor(value) if hasattr(value, "__array__") else value

    if isinstance(example, torch.Tensor) or hasattr(example, "__array__"):
        return tensor(example)
    if isinstance(example, Mapping):
        return {name: tensor(value) for name, value in example.items()}
    return tuple(tensor(value) for value in example)


@contextlib.contextmanager
def _training(module: torch.nn.Module) -> Iterator[None]:
    """As it is exported: in training mode, parts that are not stay so; of Hugging Face without a
    cache of keys, which is no tensor. All is as before afterwards."""
    modes = {part: part.training for part in module.modules()}
    configs = {id(one): one for part in module.modules() if (one := getattr(part, "config", None))}
    cached = [one for one in configs.values() if getattr(one, "use_cache", None) is True]
    if not module.training:
        module.train()
    for config in cached:
        config.use_cache = False
    try:
        yield
    finally:
        for part, mode in modes.items():
            part.training = mode
        for config in cached:
            config.use_cache = True


def unwrapped(module: torch.nn.Module) -> torch.nn.Module:
    """The module inside of torch.compile's, DataParallel's or DistributedDataParallel's."""
    parallel = (torch.nn.DataParallel, torch.nn.parallel.DistributedDataParallel)
    while True:
        if isinstance(module, parallel):
            module = module.module
        elif isinstance(inner := getattr(module, "_orig_mod", None), torch.nn.Module):
            module = inner
        else:
            return module


def _refuse_what_is_no_tensor(place: str, value: Any) -> None:
    if isinstance(value, (Mapping, tuple, list)):
        raise TypeError(
            f"the example's {place} is a {type(value).__name__}: expected tensors, by place or by "
            "name"
        )


def _refuse_hooks(module: torch.nn.Module) -> None:
    """Of the backward pass, which an exported program does not have."""
    for name, part in module.named_modules():
        if part._backward_hooks or part._backward_pre_hooks:
            raise ValueError(
                f"the module '{name or type(part).__name__}' has a hook of its backward pass, "
                "which torch.export leaves out: remove it"
            )
    for name, weight in module.named_parameters():
        if weight._backward_hooks or weight._post_accumulate_grad_hooks:
            raise ValueError(
                f"the parameter '{name}' has a hook of its gradient, which torch.export leaves "
                "out: remove it"
            )


@contextlib.contextmanager
def _own_gradients() -> Iterator[set[str]]:
    """What the module's code does to gradients meanwhile: torch.export leaves it out silently."""
    found: set[str] = set()
    function = torch.autograd.Function
    apply, register = function.apply, torch.Tensor.register_hook

    def seen_apply(cls: Any, *arguments: Any, **keywords: Any) -> Any:
        if not cls.__module__.startswith("torch."):  # checkpointing changes no gradient
            found.add(f"the backward pass of {cls.__name__}")
        return apply.__func__(cls, *arguments, **keywords)

    def seen_register(tensor: torch.Tensor, hook: Any) -> Any:
        found.add("a hook of a tensor's gradient (register_hook)")
        return register(tensor, hook)

    function.apply = classmethod(seen_apply)
    torch.Tensor.register_hook = seen_register
    try:
        yield found
    finally:
        function.apply = apply
        torch.Tensor.register_hook = register


def _in_place_of_a_list(module: torch.nn.Module, count: int) -> int | None:
    """Of so many arguments, the first that ``forward(self, *inputs)`` takes into its list."""
    try:
        parameters = list(inspect.signature(module.forward).parameters.values())
    except (TypeError, ValueError):
        return None
    for position, parameter in enumerate(parameters):
        if parameter.kind == inspect.Parameter.VAR_POSITIONAL:
            return position if position < count else None
    return None


def _batched(example: Example) -> Example:
    """The example with at least two samples: one alone would make the batch a constant."""

    def twice(value: Any) -> Any:
        if isinstance(value, torch.Tensor) and value.dim() > 0 and value.shape[0] == 1:
            return torch.cat([value, value])
        return value

    if isinstance(example, torch.Tensor):
        return twice(example)
    if isinstance(example, Mapping):
        return {name: twice(value) for name, value in example.items()}
    return tuple(twice(value) for value in example)


def export(module: torch.nn.Module, example: Example, path: PathLike) -> Path:
    """Writes a module as a file (.pt2) that `penstock.Trainer` and the command `penstock` train.

    The module is exported in training mode; if it is in training mode, parts of it that are not
    (a frozen batch norm) stay as they are. Its modes are as before afterwards. The first dimension
    of every tensor in the example is the batch, of any size; the others are fixed.

    :param module: takes tensors and returns logits, another output, or its own loss (first)
    :param example: a batch: one tensor, several in their order, or by name (for modules of Hugging
        Face; with ``labels`` these return their loss)
    :param path: of the file, which ends in .pt2
    :returns: the path
    :raises ValueError: gradients that the program would not have: hooks, a backward pass of its own
    :raises torch._dynamo.exc.UserError: what torch.export says of a module that it cannot export

    >>> import tempfile, torch
    >>> folder = tempfile.TemporaryDirectory()
    >>> export(torch.nn.Linear(3, 2), torch.zeros(4, 3), folder.name + "/linear.pt2").name
    'linear.pt2'
    """
    path = Path(path)
    if path.suffix != ".pt2":
        raise ValueError(f"the file's name must end in .pt2, found '{path.name}'")
    if not isinstance(module, torch.nn.Module):
        raise TypeError(f"expected a module (an object of torch.nn.Module), found {module!r:.80}")
    module = unwrapped(module)
    for name, weight in module.named_parameters():
        if torch.nn.parameter.is_lazy(weight):
            raise ValueError(
                f"the parameter '{name}' has no shape yet: call the module once, module(example)"
            )
    if not any(weight.requires_grad for weight in module.parameters()):
        raise ValueError("no parameter of the module needs a gradient: there is nothing to train")
    arguments, keywords = _arguments(_batched(_tensors(example)))
    for position, value in enumerate(arguments):
        _refuse_what_is_no_tensor(f"part {position + 1}", value)
    for name, value in keywords.items():
        _refuse_what_is_no_tensor(f"'{name}'", value)
    batch = torch.export.Dim("batch", min=1)

    def dynamic(value: Any) -> Any:
        return {0: batch} if isinstance(value, torch.Tensor) and value.dim() > 0 else None

    shapes: Any
    if keywords:
        shapes = {name: dynamic(value) for name, value in keywords.items()}
    else:
        shapes = tuple(dynamic(value) for value in arguments)
        listed = _in_place_of_a_list(module, len(arguments))
        if listed is not None:
            shapes = (*shapes[:listed], shapes[listed:])
    _refuse_hooks(module)
    with _training(module), _own_gradients() as own:
        program = torch.export.export(
            module, arguments, keywords, dynamic_shapes=shapes, strict=False
        )
    if own:
        raise ValueError(
            f"the module has {' and '.join(sorted(own))}, which torch.export leaves out: it would "
            "train with other gradients"
        )
    torch.export.save(program, path)
    return path
