"""From a module to a file that Penstock reads."""

from __future__ import annotations

import contextlib
import functools
import inspect
import os
import re
import traceback
import warnings
from pathlib import Path
from typing import Any, Iterable, Iterator, Mapping, Sequence, Union

import numpy as np
import torch
import torch.fx.experimental.symbolic_shapes
import torch.utils.checkpoint

from penstock._weights import REFERENCE, Folder, PathLike, Placed, has_empty

Example = Union[torch.Tensor, Sequence[Any], Mapping[str, Any]]
#: What NumPy's arrays of ml_dtypes are called, there and in PyTorch.
_SHORT_FLOATS = ("bfloat16", "float8_e4m3fn", "float8_e4m3fnuz", "float8_e5m2", "float8_e5m2fnuz")

#: What models of Hugging Face call the number of targets that count in a batch.
TARGET_NUMBER = "num_items_in_batch"
#: The form of a mixture of experts whose program is the same for all tokens.
_EXPERTS = "batched_mm"
#: Of the lengths that a model can have, in a message of torch.export.
_LENGTHS = re.compile(r"Dim\('length'(?:, min=(?P<least>\d+))?(?:, max=(?P<most>\d+))?\)")


def _arguments(example: Example) -> tuple[tuple[Any, ...], dict[str, Any]]:
    if isinstance(example, torch.Tensor):
        return (example,), {}
    if isinstance(example, Mapping):
        return (), dict(example)
    return tuple(example), {}


def tensor_of(value: Any) -> torch.Tensor:
    """Of an array of numbers. Raises TypeError."""
    if isinstance(value, torch.Tensor):
        return value
    if isinstance(value, np.ndarray) and value.dtype.name in _SHORT_FLOATS:
        # Of ml_dtypes: NumPy itself has no such types.
        bits = np.ascontiguousarray(value).view(f"int{8 * value.itemsize}")
        return torch.from_numpy(bits).view(getattr(torch, value.dtype.name)).float()
    if isinstance(value, np.ndarray) and value.dtype.kind in "biufc":
        value = np.ascontiguousarray(value, value.dtype.newbyteorder("="))
    try:
        return torch.as_tensor(value)
    except (TypeError, ValueError, RuntimeError) as error:
        raise TypeError(f"expected a tensor or an array of numbers, found {value!r:.60}") from error


def _tensors(example: Any) -> Example:
    """The same with tensors in the place of arrays."""

    def tensor(value: Any) -> Any:
        return tensor_of(value) if hasattr(value, "__array__") else value

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
    """What the module's code does to gradients meanwhile: torch.export leaves it out silently.

    Seen where PyTorch itself comes along, so that it does not matter by which name the module calls
    it (a bound ``MyFunction.apply``): each application of a function makes a node.
    """
    found: set[str] = set()
    node, autograd = torch.autograd.function.BackwardCFunction, torch.autograd
    inference = torch.inference_mode
    make_node, register = node.__init__, torch.Tensor.register_hook
    run_backward, enter = autograd._engine_run_backward, inference.__enter__

    def seen_node(self: Any, *options: Any, **more: Any) -> None:
        cls = type(self)._forward_cls
        if cls is torch.utils.checkpoint.CheckpointFunction:
            found.add("checkpoint(use_reentrant=True), where use_reentrant=False would do")
        elif not cls.__module__.startswith("torch."):
            found.add(f"the backward pass of {cls.__name__}")
        make_node(self, *options, **more)

    def seen_register(tensor: torch.Tensor, hook: Any) -> Any:
        found.add("a hook of a tensor's gradient (register_hook)")
        return register(tensor, hook)

    def seen_backward(outputs: Any, *options: Any, **more: Any) -> Any:
        if not options[2]:  # gradients, retain_graph, create_graph
            found.add("gradients taken without create_graph=True")
        return run_backward(outputs, *options, **more)

    def seen_inference(mode: Any) -> None:
        if mode.mode:
            found.add("torch.inference_mode(), where torch.no_grad() would do")
        enter(mode)

    node.__init__ = seen_node
    torch.Tensor.register_hook = seen_register
    autograd._engine_run_backward = seen_backward
    inference.__enter__ = seen_inference
    try:
        yield found
    finally:
        node.__init__ = make_node
        torch.Tensor.register_hook = register
        autograd._engine_run_backward = run_backward
        inference.__enter__ = enter


@contextlib.contextmanager
def _plain_tensors(module: torch.nn.Module) -> Iterator[None]:
    """Refuses a module that changes tensors which are no buffers: tracing changes them, too, and no
    state dict has them. They are as before afterwards."""
    tensors = {
        f"{prefix}.{name}" if prefix else name: value
        for prefix, part in module.named_modules()
        for name, value in vars(part).items()
        if isinstance(value, torch.Tensor)
    }
    before = {name: (value._version, value.detach().clone()) for name, value in tensors.items()}
    changed: list[str] = []
    try:
        yield
    finally:
        changed = [name for name, value in tensors.items() if value._version != before[name][0]]
        with torch.no_grad():
            for name in changed:
                tensors[name].copy_(before[name][1])
    if changed:
        raise ValueError(
            f"the module changes its tensor '{changed[0]}', which is no buffer: make it one, by "
            f"self.register_buffer('{changed[0].rpartition('.')[2]}', ...)"
        )


def _warn_of_counts(module: torch.nn.Module, program: torch.export.ExportedProgram) -> None:
    """Of whole numbers that the model changes."""
    buffers = dict(module.named_buffers())
    changed = dict.fromkeys(
        program.graph_signature.inputs_to_buffers.get(argument.name, "")
        for node in program.graph.nodes
        if isinstance(node.target, torch._ops.OpOverload)
        for argument, taken in zip(node.args, node.target._schema.arguments)
        if isinstance(argument, torch.fx.Node) and taken.is_write
    )
    for name in changed:
        buffer = buffers.get(name)
        if buffer is None or buffer.is_floating_point() or name.endswith("num_batches_tracked"):
            continue
        warnings.warn(
            f"the model changes its buffer '{name}' of {str(buffer.dtype).removeprefix('torch.')}: "
            "it is float32 while it trains, in which whole numbers beyond 16,777,216 are not "
            "exact, and operators that want whole numbers refuse it",
            stacklevel=4,
        )


@contextlib.contextmanager
def _fixed_sizes() -> Iterator[list[str]]:
    """The lines of the user's code at which the exporter takes a size for a constant: its own
    message names none."""
    found: list[str] = []
    shapes = torch.fx.experimental.symbolic_shapes.ShapeEnv
    replace = getattr(shapes, "_set_replacement", None)  # none of its public names

    def seen(env: Any, symbol: Any, value: Any, *why: Any) -> Any:
        if getattr(value, "is_number", False) and (line := _own_line(traceback.extract_stack())):
            found.append(line)
        return replace(env, symbol, value, *why)

    if replace is not None:
        shapes._set_replacement = seen
    try:
        yield found
    finally:
        if replace is not None:
            shapes._set_replacement = replace


def _own_line(stack: traceback.StackSummary) -> str:
    """The innermost line that is neither PyTorch's nor ours: "net.py:17: x.view(4, -1)"."""
    ours = (os.path.dirname(torch.__file__), os.path.dirname(__file__), "<")
    python = os.path.dirname(os.__file__)
    for frame in reversed(stack):
        is_python = frame.filename.startswith(python) and "site-packages" not in frame.filename
        if not is_python and not frame.filename.startswith(ours):
            return f"{os.path.basename(frame.filename)}:{frame.lineno}: {frame.line}"
    return ""


def hint_of_experts(module: torch.nn.Module) -> str:
    """For what cannot be exported or imported of a mixture of experts of Hugging Face."""
    for part in module.modules():
        form = getattr(getattr(part, "config", None), "_experts_implementation", None)
        if isinstance(form, str) and form != _EXPERTS and "experts" in dict(part.named_children()):
            return (
                f"; the module is a mixture of experts in the form '{form}', which reads their "
                f"numbers: set_experts_implementation('{_EXPERTS}') of the model takes the form "
                "that can be exported"
            )
    return ""


@contextlib.contextmanager
def _named(module: torch.nn.Module, names: Iterable[str]) -> Iterator[None]:
    """What ``forward(self, **more)`` takes into its dictionary has a name of its own meanwhile: up
    to 2.13 torch.export takes no dynamic sizes of what is in such a dictionary."""
    own, forward = "forward" in vars(module), module.forward
    try:
        signature = inspect.signature(forward)
    except (TypeError, ValueError):
        yield
        return
    parameters = signature.parameters.values()
    known = [one for one in parameters if one.kind != inspect.Parameter.VAR_KEYWORD]
    more = [name for name in names if name not in signature.parameters]
    if len(known) == len(parameters) or not more:
        yield
        return

    @functools.wraps(forward)
    def named(*inputs: Any, **keywords: Any) -> Any:
        return forward(*inputs, **keywords)

    added = [inspect.Parameter(name, inspect.Parameter.KEYWORD_ONLY) for name in more]
    named.__signature__ = signature.replace(parameters=known + added)  # type: ignore[attr-defined]
    module.forward = named
    try:
        yield
    finally:
        if own:
            module.forward = forward
        else:
            del module.forward


def _with_target_number(
    module: torch.nn.Module, arguments: tuple[Any, ...], keywords: dict[str, Any]
) -> tuple[tuple[Any, ...], dict[str, Any]]:
    """The number of targets as a tensor without dimensions: torch.export writes other numbers into
    the program."""

    def tensor(value: Any) -> Any:
        if isinstance(value, torch.Tensor):
            return value.reshape(()) if value.numel() == 1 else value
        return value if value is None else tensor_of(value)

    named = {
        name: tensor(value) if name == TARGET_NUMBER else value for name, value in keywords.items()
    }
    try:
        names = list(inspect.signature(module.forward).parameters)
    except (TypeError, ValueError):
        names = []
    placed = (
        tensor(value) if place < len(names) and names[place] == TARGET_NUMBER else value
        for place, value in enumerate(arguments)
    )
    return tuple(placed), named


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
    """The example with at least two samples: one alone would make the batch a constant. Each part
    is a tensor of its own: of one that is given twice, as inputs and as labels, torch.export would
    read the last one in both places."""
    seen: set[int] = set()

    def twice(value: Any) -> Any:
        if isinstance(value, torch.Tensor) and id(value) in seen:
            value = value.clone()
        seen.add(id(value))
        if isinstance(value, torch.Tensor) and value.dim() > 0 and value.shape[0] == 1:
            return torch.cat([value, value])
        return value

    if isinstance(example, torch.Tensor):
        return twice(example)
    if isinstance(example, Mapping):
        return {name: twice(value) for name, value in example.items()}
    return tuple(twice(value) for value in example)


def _length_of(values: Iterable[Any]) -> int:
    """The second size of the first input of whole numbers, or of the first that has one."""
    sized = [one for one in values if isinstance(one, torch.Tensor) and one.dim() > 1]
    tokens = [one for one in sized if not one.is_floating_point()]
    if not sized:
        raise ValueError("any_length: no input has a second dimension, which would be the length")
    length = (tokens or sized)[0].shape[1]
    if length < 2:
        raise ValueError(f"any_length: expected sequences of at least 2 places, found {length}")
    return length


def _dynamic_sizes(
    module: torch.nn.Module, arguments: tuple[Any, ...], keywords: dict[str, Any], length: int,
    least: int, most: int | None,
) -> Any:  # fmt: skip
    """What torch.export takes: batches of any size, and sequences of any length from `least` to
    `most` (`length`: that of the example; 0: as it is)."""
    batch = torch.export.Dim("batch", min=1)
    places = torch.export.Dim("length", min=least, max=most)

    def dynamic(value: Any) -> Any:
        if not isinstance(value, torch.Tensor) or value.dim() == 0:
            return None
        is_sequence = length > 0 and value.dim() > 1 and value.shape[1] == length
        return {0: batch, 1: places} if is_sequence else {0: batch}

    if keywords:
        return {name: dynamic(value) for name, value in keywords.items()}
    shapes: Any = tuple(dynamic(value) for value in arguments)
    listed = _in_place_of_a_list(module, len(arguments))
    return shapes if listed is None else (*shapes[:listed], shapes[listed:])


def _program(
    module: torch.nn.Module, arguments: tuple[Any, ...], keywords: dict[str, Any], length: int
) -> torch.export.ExportedProgram:
    least, most = 2, None
    for _ in range(4):
        shapes = _dynamic_sizes(module, arguments, keywords, length, least, most)
        try:
            return torch.export.export(
                module, arguments, keywords, dynamic_shapes=shapes, strict=False
            )
        except torch._dynamo.exc.UserError as error:
            # A model that shifts its logits itself (`logits[:, :-1]`) needs two places of these; a
            # weight for each place ends at its size.
            bounds = _LENGTHS.search(str(error))
            before = least, most
            least = int(bounds["least"] or least) if bounds else least
            most = int(bounds["most"]) if bounds and bounds["most"] else most
            if before == (least, most):
                raise
            refused = error
    raise refused


def exported(
    module: torch.nn.Module, example: Example, any_length: bool = False
) -> torch.export.ExportedProgram:
    """The module's program in training mode, for batches of any size. Raises what `export` does."""
    if not isinstance(module, torch.nn.Module):
        raise TypeError(f"expected a module (an object of torch.nn.Module), found {module!r:.80}")
    module = unwrapped(module)
    for name, weight in module.named_parameters():
        if torch.nn.parameter.is_lazy(weight):
            raise ValueError(
                f"the parameter '{name}' has no shape yet: call the module once, module(example)"
            )
    for name, buffer in module.named_buffers():
        if buffer.layout != torch.strided:
            raise ValueError(
                f"the buffer '{name}' is sparse, which torch.export does not take: make it dense "
                "(to_dense())"
            )
    if not any(weight.requires_grad for weight in module.parameters()):
        raise ValueError("no parameter of the module needs a gradient: there is nothing to train")
    arguments, keywords = _with_target_number(module, *_arguments(_tensors(example)))
    arguments, keywords = _arguments(_batched(keywords or arguments))
    for position, value in enumerate(arguments):
        _refuse_what_is_no_tensor(f"part {position + 1}", value)
    for name, value in keywords.items():
        _refuse_what_is_no_tensor(f"'{name}'", value)
    length = _length_of([*arguments, *keywords.values()]) if any_length else 0
    _refuse_hooks(module)
    with (
        _training(module), _plain_tensors(module), _own_gradients() as own,
        _fixed_sizes() as fixed, _named(module, keywords),
    ):  # fmt: skip
        try:
            program = _program(module, arguments, keywords, length)
        except Exception as error:
            why = hint_of_experts(module)
            if fixed and not why:
                why = f"; a size that should be the batch's is fixed at {fixed[-1]}"
            if not why and isinstance(error, torch._dynamo.exc.UserError):
                raise  # it names the line itself
            if not why and (line := _own_line(traceback.extract_tb(error.__traceback__))):
                why = f" at {line}"
            raise ValueError(f"torch.export refuses the module{why}. It says: {error}") from error
    if own:
        raise ValueError(
            f"the module has {' and '.join(sorted(own))}, which torch.export leaves out: it would "
            "train with other gradients"
        )
    _warn_of_counts(module, program)
    return program


def export(
    module: torch.nn.Module,
    example: Example,
    path: PathLike,
    *,
    any_length: bool = False,
    weights: PathLike | None = None,
) -> Path:
    """Writes a module as a file (.pt2) that `penstock.Trainer` and the command `penstock` train.

    The module is exported in training mode; if it is in training mode, parts of it that are not
    (a frozen batch norm) stay as they are. Its modes are as before afterwards. The first dimension
    of every tensor in the example is the batch, of any size; the others are fixed, but for
    ``any_length``.

    :param module: takes tensors and returns logits, another output, or its own loss (first)
    :param example: a batch: one tensor, several in their order, or by name (for modules of Hugging
        Face; with ``labels`` these return their loss)
    :param path: of the file, which ends in .pt2
    :param any_length: the second dimension of inputs is the length of sequences, of any size from 2
        on: that of the first input of whole numbers, and of all that have the same size there
    :param weights: of a module whose parameters have no values (`penstock.empty_weights`): the
        folder of safetensors files that has them, as save_pretrained() of transformers writes it,
        or one such file. The program refers to these files and holds none of their weights; they
        have to stay where they are, and as they are. Parameters with values, such as new adapters,
        are in the program
    :returns: the path
    :raises ValueError: gradients that the program would not have (hooks, a backward pass of its
        own, inference mode), a tensor that the module changes and that is no buffer; files that
        are missing or damaged, or whose tensors are not the module's; what torch.export says of a
        module that it cannot export, with the line where that is
    :raises torch._dynamo.exc.UserError: the same, where it says the line itself

    >>> import tempfile, torch
    >>> folder = tempfile.TemporaryDirectory()
    >>> export(torch.nn.Linear(3, 2), torch.zeros(4, 3), folder.name + "/linear.pt2").name
    'linear.pt2'
    """
    path = Path(path)
    if path.suffix != ".pt2":
        raise ValueError(f"the file's name must end in .pt2, found '{path.name}'")
    if isinstance(module, torch.nn.Module) and weights is not None:
        placed = Placed(unwrapped(module), Folder(weights))
        with placed.filled():
            program = exported(module, example, any_length)
        extra = {REFERENCE: placed.reference(path, weights)}
        torch.export.save(placed.emptied(program), path, extra_files=extra)
        return path
    if isinstance(module, torch.nn.Module) and (name := has_empty(unwrapped(module))):
        raise ValueError(
            f"'{name}' has no values (it is on the device meta): expected weights=, the folder of "
            "safetensors files that has them, or a module with values"
        )
    torch.export.save(exported(module, example, any_length), path)
    return path
