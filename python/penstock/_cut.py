"""Cuts an exported program into the modules of consecutive stages.

    cutter = Cutter(program.module(check_guards=False), plan_layers, [micro_batch])
    cutter.part(1)      # a module: takes what crosses before the stage, returns what crosses behind
    cutter.tensors(1)   # the types and sizes of what it takes
"""

from __future__ import annotations

import operator
from typing import Any, Iterable

import torch
from torch import fx
from torch._subclasses.fake_tensor import FakeTensorMode

from penstock._errors import PenstockError


class _Values(fx.Interpreter):
    """What every node makes of a micro-batch, without computing it."""

    def __init__(self, flat: fx.GraphModule, inputs: list[torch.Tensor]):
        super().__init__(flat, garbage_collect_values=False)
        self.of: dict[fx.Node, Any] = {}
        with FakeTensorMode(allow_non_fake_inputs=True) as mode, torch.enable_grad():
            self.run(*map(mode.from_tensor, inputs), enable_io_processing=False)

    def run_node(self, n: fx.Node) -> Any:
        self.of[n] = super().run_node(n)
        return self.of[n]


def _begins(nodes: list[fx.Node], layers: list[str], after: int) -> int:
    """The position behind `after` where a stage of these layers begins."""
    behind = [at for at in range(after + 1, len(nodes)) if nodes[at].op == "call_function"]
    for layer in layers:
        module, _, name = layer.partition("-")  # the operator where a module makes several layers
        for at in behind if name else ():
            if nodes[at].name == name:
                return at
        for at in behind:
            stack = nodes[at].meta.get("nn_module_stack", {}).values()
            if any(f"{path.split('@')[0]}.".startswith(f"{module}.") for path, _ in stack):
                return at
    raise PenstockError(f"the model has none of the layers {layers[:3]}... where the plan cuts it")


def _written(node: fx.Node) -> list[fx.Node]:
    """The values that an operator changes in place."""
    if not isinstance(node.target, torch._ops.OpOverload):
        return []
    takes = zip(node.args, node.target._schema.arguments)
    return [one for one, taken in takes if taken.is_write and isinstance(one, fx.Node)]


def _repeatable(nodes: Iterable[fx.Node], values: dict[fx.Node, Any]) -> set[fx.Node]:
    """What every stage computes for itself: from constants and whole numbers alone."""
    pinned = {one for node in nodes for one in _written(node)}
    for node in reversed(list(nodes)):
        if node in pinned and node.op == "call_function":
            pinned.update(node.all_input_nodes)
    changed = {node.target for node in pinned if node.op == "get_attr"}
    free: set[fx.Node] = set()
    for node in nodes:
        value = values.get(node)
        if node.op == "placeholder":
            is_free = not value.is_floating_point()
        elif node.op == "get_attr":
            is_free = node.target not in changed and not getattr(value, "requires_grad", False)
        else:
            target = node.target
            tags = getattr(target, "tags", ())
            is_free = node.op == "call_function" and not _written(node) and node not in pinned
            is_free &= torch.Tag.nondeterministic_seeded not in tags
            is_free &= all(one in free for one in node.all_input_nodes)
        if is_free:
            free.add(node)
    return free


def _sent(value: torch.Tensor) -> torch.Tensor:
    """A copy, contiguous as messages must be, since zero-bubble schedules detach what a stage
    returns: no view, and nothing that its operator keeps. A loss as a list of one."""
    value = value if value.dim() else value.reshape(1)
    return value.clone(memory_format=torch.contiguous_format)


def _received(value: torch.Tensor, stride: tuple[int, ...]) -> torch.Tensor:
    """A copy that lies in memory as the original does, and may be changed in place; its gradient
    can be sent."""
    value = value.new_empty_strided(value.shape, stride).copy_(value)
    if value.requires_grad:
        value.register_hook(torch.Tensor.contiguous)
    return value


def _stride(value: torch.Tensor) -> tuple[int, ...]:
    """In memory of its own, which an expanded tensor has not."""
    return value.contiguous().stride() if 0 in value.stride() else value.stride()


class Cutter:
    """Cuts a flat program. What a later stage needs goes through all stages between, since PyTorch
    sends to the next one only."""

    def __init__(self, flat: fx.GraphModule, layers: list[list[str]], inputs: list[torch.Tensor]):
        self.flat, self.values = flat, _Values(flat, inputs).of
        self.nodes = list(flat.graph.nodes)
        self.free = _repeatable(self.nodes, self.values)
        cuts = [0]
        for of_stage in layers[1:]:
            cuts.append(_begins(self.nodes, of_stage, cuts[-1]))
        self.stage_of: dict[fx.Node, int] = {}
        for at, node in enumerate(self.nodes):
            self.stage_of[node] = sum(at >= cut for cut in cuts) - 1
            if node.target is operator.getitem:
                self.stage_of[node] = self.stage_of[node.args[0]]
            elif node.op == "placeholder":
                self.stage_of[node] = 0
        self.members = [self._members(stage) for stage in range(len(cuts))]

    def _members(self, stage: int) -> set[fx.Node]:
        """The stage's own nodes, what it repeats, and what it needs of earlier ones."""
        found: set[fx.Node] = set()
        wanted = [
            node for node in self.nodes
            if self.stage_of[node] == stage and node not in self.free and node.op != "get_attr"
        ]  # fmt: skip
        while wanted:
            node = wanted.pop()
            if node in found or not self._is_value(node):
                continue
            found.add(node)
            if self.stage_of[node] == stage or node in self.free:
                wanted += node.all_input_nodes
        return found

    def _is_value(self, node: fx.Node) -> bool:
        """Not a size, which is known, nor a check of one."""
        is_tensor = isinstance(self.values[node], (torch.Tensor, tuple, list))
        return is_tensor or node.op in ("output", "get_attr")

    def crossing(self, stage: int) -> list[fx.Node]:
        """Before the stage; behind the last one the model's first output."""
        if stage == 0:
            return [node for node in self.nodes if node.op == "placeholder"]
        if stage == len(self.members):
            return self.nodes[-1].all_input_nodes[:1]
        needed = set().union(*self.members[stage:])
        return [
            node for node in self.nodes
            if node in needed and self.stage_of[node] < stage and node.op != "get_attr"
            and (node not in self.free or node.op == "placeholder")
        ]  # fmt: skip

    def part(self, stage: int) -> fx.GraphModule:
        graph, made = fx.Graph(), {}
        for node in self.crossing(stage):
            made[node] = graph.placeholder(node.name)
        for node in self.crossing(stage) if stage else ():
            made[node] = graph.call_function(_received, (made[node], _stride(self.values[node])))
        for node in self.nodes:
            if node in self.members[stage] and node not in made and node.op != "output":
                made[node] = graph.node_copy(node, lambda one: made.get(one, self.values[one]))
        sent = [graph.call_function(_sent, (made[one],)) for one in self.crossing(stage + 1)]
        graph.output(sent[0] if len(sent) == 1 else tuple(sent))
        return fx.GraphModule(self.flat, graph)

    def tensors(self, stage: int) -> tuple[torch.Tensor, ...]:
        """What crosses before the stage: types and sizes alone, as `_sent` sends it."""
        made = [self.values[node] for node in self.crossing(stage)]
        return tuple(
            torch.empty(one.shape or (1,), dtype=one.dtype, requires_grad=one.requires_grad)
            for one in made
        )

    def needs_whole_backward(self, stage: int) -> bool:
        """Whether a trained weight of the stage meets no gradient of its inputs, as behind a frozen
        stage: PyTorch's `I` and `W` would leave it without a gradient, and say nothing."""
        inputs = set(self.crossing(stage))
        met: set[fx.Node] = set()  # weights whose way to the outputs joins that of an input
        behind: set[fx.Node] = set()
        weights_of: dict[fx.Node, set[fx.Node]] = {}
        for node in self.nodes:
            if node not in self.members[stage] | inputs:
                continue
            if not getattr(self.values[node], "requires_grad", True):
                continue
            is_weight = node.op == "get_attr"
            given = [one for one in node.all_input_nodes if node not in inputs]
            weights_of[node] = {node} if is_weight else set()
            weights_of[node].update(*(weights_of.get(one, ()) for one in given))
            if node in inputs or behind.intersection(given):
                behind.add(node)
                met |= weights_of[node]
        trained = {node.target for node in weights_of if node.op == "get_attr"}
        return bool(trained - {node.target for node in met})
