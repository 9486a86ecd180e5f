"""Plans in the pipelines of others: PyTorch's own, torchtitan's, DeepSpeed's.

    plan = penstock.plan(penstock.profile(model, x[:4], batch_size=4), workers=2,
                         strategy="1f1b-flush", straight=True, micro_batches=4)
    stages, schedule = penstock.pytorch.pipeline(model, x, plan, loss_fn=loss)   # in each process
    schedule.step(x, target=y, losses=losses)
"""

from __future__ import annotations

import re
import tempfile
from pathlib import Path
from typing import Any, Callable, Iterable

import torch
import torch.distributed as dist
from torch.distributed import pipelining
from torch.distributed.pipelining.schedules import _PipelineScheduleRuntime

from penstock._cut import Cutter
from penstock._errors import PenstockError
from penstock._export import Example, _arguments, _tensors, exported
from penstock._split import Split, deepspeed_parts, module_parts
from penstock._tool import Document

__all__ = ["deepspeed_module", "deepspeed_parts", "module_parts", "pipeline"]


def pipeline(
    module: torch.nn.Module,
    example: Example,
    plan: Document,
    *,
    loss_fn: Callable[[Any, torch.Tensor], torch.Tensor] | None = None,
    device: torch.device | str = "cpu",
    group: dist.ProcessGroup | None = None,
) -> tuple[list[pipelining.PipelineStage], Any]:
    """The stages of this process and the schedule, cut and ordered as the plan says.

    Every process of the group calls it with the same arguments, then
    ``schedule.step(x, target=y)`` for every batch: the first stage takes the inputs, the last the
    targets. The stages train the parameters of ``module`` itself, each its own; gradients of a
    parameter that two processes share are added. The plan's workers are the ranks of the group.

    :param module: exported as by `penstock.export`; of several outputs the first counts
    :param example: a batch as ``step`` takes it; its size is that of every batch
    :param plan: of `penstock.plan`, also with ``format="pytorch"``, or a file of either
    :param loss_fn: of outputs and targets of a micro-batch, a mean; None: the output is the loss
    :returns: the stages, in their order, and a schedule of torch.distributed.pipelining
    :raises PenstockError: a plan that PyTorch cannot run, another number of processes
    """
    split = Split(plan)
    if dist.get_world_size(group) != split.workers:
        raise PenstockError(
            f"the plan is for {split.workers} workers: expected as many processes, found "
            f"{dist.get_world_size(group)}"
        )
    arguments, named = _arguments(_tensors(example))
    inputs = _micro_batch([*arguments, *named.values()], split.micro_batches)
    flat = exported(module, example).module(check_guards=False)
    cutter = Cutter(flat, split.layers, inputs)
    parts = [cutter.part(stage) for stage in range(len(split.layers))]
    rank = dist.get_rank(group)
    shared = _shared(parts, split.rank_of, rank, group)
    own = {index: part.to(device) for index, part in enumerate(parts)
           if split.rank_of[index] == rank}  # fmt: skip
    aliases = _alias(list(own.values()))
    stages = [
        pipelining.PipelineStage(
            part, index, len(parts), torch.device(device), group=group,
            input_args=cutter.tensors(index), output_args=cutter.tensors(index + 1),
        )
        for index, part in own.items()
    ]  # fmt: skip
    whole = {index for index in range(1, len(parts)) if cutter.needs_whole_backward(index)}
    made = _schedule(split, stages, loss_fn or (lambda output, _: output.sum()), whole)
    names = [node.name for node in flat.graph.nodes if node.op == "placeholder"]
    _make_ready(made, stages, names, aliases, shared)
    return stages, made


def deepspeed_module(layers: Iterable[Any], plan: Document, **options: Any) -> Any:
    """DeepSpeed's PipelineModule of these layers, cut as the plan says.

    PipelineModule itself can only balance layers, parameters or a type of layer.

    :param layers: as for PipelineModule; the plan is one of ``torch.nn.Sequential(*layers)``
    :param options: those of PipelineModule, but for the stages and the method of partition
    """
    from deepspeed.pipe import PipelineModule

    layers = list(layers)
    parts = deepspeed_parts(plan, len(layers))

    class Planned(PipelineModule):
        def _partition_layers(self, method: str = "") -> None:
            self.parts = parts
            stage = self._topo.get_coord(self.global_rank).pipe
            self._set_bounds(start=parts[stage], stop=parts[stage + 1])

    return Planned(layers, num_stages=len(parts) - 1, **options)


def _micro_batch(inputs: list[Any], micro_batches: int) -> list[Any]:
    for value in inputs:
        if not isinstance(value, torch.Tensor) or value.dim() == 0:
            raise TypeError(f"expected tensors with samples as the example, found {value!r:.80}")
        if len(value) % micro_batches:
            raise PenstockError(
                f"a batch of {len(value)} samples cannot be cut into the plan's {micro_batches} "
                "equal micro-batches"
            )
    return [value[: len(value) // micro_batches] for value in inputs]


def _schedule(
    split: Split, stages: list[Any], loss_fn: Callable[..., Any], whole: set[int]
) -> Any:
    """A schedule of the plan's order; those that PyTorch has by itself are its own. Backward passes
    of the stages `whole` are not divided: theirs are where their input's would be."""
    own = {"gpipe": pipelining.ScheduleGPipe, "1f1b-flush": pipelining.Schedule1F1B}
    if split.strategy in own and len(stages) == 1:
        return own[split.strategy](stages[0], split.micro_batches, loss_fn=loss_fn)
    made = _PipelineScheduleRuntime(stages, split.micro_batches, loss_fn=loss_fn)
    with tempfile.TemporaryDirectory(prefix="penstock-") as folder:
        path = Path(folder) / "schedule.csv"
        path.write_text(_undivided(split.schedule, whole))
        made._load_csv(str(path))
    return made


def _undivided(text: str, stages: set[int]) -> str:
    """The schedule with B for I, and without W, in these stages."""
    for stage in stages:
        text = re.sub(rf"(?<!\d){stage}I(?=\d)", f"{stage}B", text)
        text = re.sub(rf"(?<!\d){stage}W\d+", "", text)
    return text


def _shared(
    parts: list[torch.nn.Module], ranks: dict[int, int], rank: int, group: dist.ProcessGroup | None
) -> list[tuple[torch.nn.Parameter, dist.ProcessGroup]]:
    """This rank's parameters that other ranks have, too, with a group of those that have them."""
    owners: dict[torch.nn.Parameter, set[int]] = {}
    for index, part in enumerate(parts):
        for weight in part.parameters():
            owners.setdefault(weight, set()).add(ranks[index])
    groups: dict[tuple[int, ...], dist.ProcessGroup] = {}
    result = []
    for weight, having in owners.items():
        if rank not in having or len(having) == 1 or not weight.requires_grad:
            continue
        whole = group or dist.group.WORLD
        world = tuple(dist.get_global_rank(whole, one) for one in sorted(having))
        if world not in groups:
            groups[world] = dist.new_group(world, use_local_synchronization=True)
        result.append((weight, groups[world]))
    return result


def _alias(parts: list[torch.nn.Module]) -> list[tuple[torch.nn.Parameter, torch.nn.Parameter]]:
    """Gives each of these stages parameters of its own, on the same memory, since PyTorch counts
    gradients of one that two stages of a process share twice. Returns originals and aliases."""
    seen: set[torch.nn.Parameter] = set()
    aliases = []
    for part in parts:
        for name, weight in list(part.named_parameters()):
            if weight in seen:
                aliases.append((weight, torch.nn.Parameter(weight.detach(), weight.requires_grad)))
                owner, _, last = name.rpartition(".")
                setattr(part.get_submodule(owner), last, aliases[-1][1])
        seen.update(part.parameters())
    return aliases


def _make_ready(
    made: Any, stages: list[Any], names: list[str], aliases: list[Any], shared: list[Any]
) -> None:
    """`step` takes the same on every rank, and adds the gradients of shared parameters. An alias is
    left without one: optimisers pass over it."""
    step, own_target = made.step, torch.zeros(made._n_microbatches)

    def ready(*inputs: Any, target: Any = None, losses: list[Any] | None = None, **options: Any):
        inputs += tuple(options.pop(name) for name in names if name in options)
        is_last = stages[-1].is_last
        result = step(
            *(inputs if stages[0].is_first else ()),
            target=(own_target if target is None else target) if is_last else None,
            losses=losses if is_last else None,
            **options,
        )
        for weight, alias in aliases:
            if alias.grad is not None:
                weight.grad = alias.grad if weight.grad is None else weight.grad + alias.grad
                alias.grad = None
        for weight, group in shared:
            weight.grad = torch.zeros_like(weight) if weight.grad is None else weight.grad
            dist.all_reduce(weight.grad, group=group)
        return result

    made.step = ready
