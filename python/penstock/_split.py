"""What a plan says of its stages to those who run them elsewhere: PyTorch's pipelining, torchtitan,
DeepSpeed."""

from __future__ import annotations

import json
import os
import re
from pathlib import Path
from typing import Any

from penstock._errors import PenstockError
from penstock._tool import Document, schedule

#: A module of a list, by its number.
_ITEM = re.compile(r".*?(?:^|\.)\d+(?=\.|$)")


def document_of(plan: Document) -> dict[str, Any]:
    """Of a plan or a split, given so or as a file."""
    if isinstance(plan, (str, os.PathLike)):
        return json.loads(Path(plan).read_text())
    return dict(plan)


def layers_of(document: dict[str, Any]) -> list[list[str]]:
    """By stage: the names of its layers."""
    return [one["layers"] if isinstance(one, dict) else one for one in document["stages"]]


def module_parts(plan: Document) -> list[list[str]]:
    """The plan as torchtitan takes it: the names of the modules of each stage.

    For ``parallelism.module_fqns_per_model_part``. A module that is one of a list stays whole
    (``layers.3``), in the stage that has most of its layers.

    >>> module_parts({"stages": [["embed", "layers.0.up"], ["layers.0.down", "layers.0-add"]]})
    [['embed'], ['layers.0']]
    """
    stages = layers_of(document_of(plan))
    counts: dict[str, dict[int, int]] = {}
    for stage, layers in enumerate(stages):
        for layer in layers:
            name = layer.partition("-")[0]
            if name != "forward":
                of_stage = counts.setdefault((_ITEM.match(name) or [name])[0], {})
                of_stage[stage] = of_stage.get(stage, 0) + 1
    parts: list[list[str]] = [[] for _ in stages]
    for name, of_stage in counts.items():
        parts[max(of_stage, key=lambda stage: (of_stage[stage], -stage))].append(name)
    return parts


def deepspeed_parts(plan: Document, layers: int) -> list[int]:
    """Where the stages of a sequence of layers begin, and where the last one ends.

    >>> deepspeed_parts({"stages": [["0", "2"], ["4-linear", "4-relu"]]}, 5)
    [0, 4, 5]
    """
    parts = [0]
    for names in module_parts(plan)[1:]:
        items = [int(name.partition(".")[0]) for name in names if name.partition(".")[0].isdigit()]
        if not items or min(items) <= parts[-1] and len(parts) > 1:
            raise PenstockError(
                "DeepSpeed cuts a sequence: expected a plan of torch.nn.Sequential(*layers) whose "
                f"stages each have one of its modules, found a stage of {names[:3]}"
            )
        parts.append(min(items))
    return [*parts, layers]


class Split:
    """The stages and the order of a plan that PyTorch can run; otherwise PenstockError says why."""

    def __init__(self, plan: Document):
        document = document_of(plan)
        if "strategy" in document and document.get("weights", "flush") != "flush":
            raise PenstockError(
                f"PyTorch does not run {document['strategy']}: expected a strategy that flushes: "
                "gpipe, 1f1b-flush, interleaved, zb-h1..."
            )
        if any(isinstance(one, dict) and one.get("replicas", 1) != 1 for one in document["stages"]):
            raise PenstockError("PyTorch has no replicas of single stages: plan with straight=True")
        if any(isinstance(one, dict) and one.get("tensor", 1) != 1 for one in document["stages"]):
            raise PenstockError("PyTorch's stages have no teams: plan without tensor")
        self.strategy: str | None = document.get("strategy")
        self.micro_batches: int = document["micro_batches"]
        self.layers = layers_of(document)
        self.schedule = document.get("schedule") or schedule(
            document, format="pytorch", compute_only=True, micro_batches=self.micro_batches
        )
        if isinstance(plan, (str, os.PathLike)) and self.schedule.endswith(".csv"):  # beside it
            self.schedule = (Path(plan).parent / self.schedule).read_text()
        rows = [line for line in self.schedule.splitlines() if line.strip(", ")]
        self.workers = len(rows)
        self.rank_of = {stage: rank for rank, row in enumerate(rows) for stage in _stages_in(row)}
        if sum(len(_stages_in(row)) for row in rows) != len(self.layers):
            raise PenstockError("PyTorch runs every stage on one worker: plan with straight=True")


def _stages_in(row: str) -> set[int]:
    """Whose passes a worker runs."""
    return {int(stage) for stage in re.findall(r"(\d+)[FBIW]\d", row)}
