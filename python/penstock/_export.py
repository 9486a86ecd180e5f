"""From a module to a file that Penstock reads."""

from __future__ import annotations

import contextlib
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
    config = getattr(module, "config", None)
    cached = getattr(config, "use_cache", None)
    if not module.training:
        module.train()
    if cached:
        config.use_cache = False
    try:
        yield
    finally:
        for part, mode in modes.items():
            part.training = mode
        if cached:
            config.use_cache = cached


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
    if not any(weight.requires_grad for weight in module.parameters()):
        raise ValueError("no parameter of the module needs a gradient: there is nothing to train")
    arguments, keywords = _arguments(_batched(_tensors(example)))
    batch = torch.export.Dim("batch", min=1)

    def dynamic(value: Any) -> Any:
        return {0: batch} if isinstance(value, torch.Tensor) and value.dim() > 0 else None

    shapes: Any = (
        {name: dynamic(value) for name, value in keywords.items()}
        if keywords
        else tuple(dynamic(value) for value in arguments)
    )
    with _training(module):
        program = torch.export.export(
            module, arguments, keywords, dynamic_shapes=shapes, strict=False
        )
    torch.export.save(program, path)
    return path
