#!/usr/bin/env python3
"""What the memory of runs consists of, and how well `penstock plan` predicts it: fifteen models,
each by one worker, as pipelines of two and four, recomputing, and with the optimiser's state shared
out. Every worker is a process.

    memory.py                     # six of them need a Python with PyTorch and the package
    memory.py --models mlp lenet5

Prints a row per run, with the worker whose tensors are furthest off the plan and the kind of memory
that is, and the part of the processes' peaks that the account of `penstock train` names; then one
line per model with its worst run. Writes a JSON with every number.
"""

import argparse
import json
import pathlib
import sys
import tempfile

from machine import REPOSITORY, describe_machine
from run_bench import Failed, run_json

# Words for `penstock train`, and the samples of a step.
ZOO = {
    "mlp": (["--model", "mlp", "--width", "1024", "--depth", "4"], 2048),
    "tied_mlp": (["--model", "tied_mlp"], 2048),
    "lenet5": (["--model", "lenet5"], 512),
    "vgg_small": (["--model", "vgg_small", "--lr", "0.001"], 64),
    "resnet18": (["--model", "resnet18", "--input", "3x64x64"], 32),
    "alexnet": (["--model", "alexnet", "--lr", "0.001"], 32),
    "transformer": (["--model", "gpt", "--width", "128", "--depth", "4"], 32),
    "awd_lm": (["--model", "awd_lm", "--width", "256", "--embedding", "128"], 64),
    "gnmt8": (["--model", "gnmt8", "--width", "64"], 64),
}
EXPORTED = ["gpt", "lora", "lstm", "dropout", "batch_norm", "vit"]
# The number of workers, the strategy, other words for `penstock plan`, and for `penstock train`.
WAYS = {
    "one worker": (1, "serial", [], []),
    "1f1b": (2, "1f1b", ["--straight"], []),
    "1f1b-flush, recomputing": (2, "1f1b-flush", ["--straight", "--recompute", "always"], []),
    "dp, ZeRO-1, Adam": (2, "dp", ["--shard-optimizer", "always", "--optimizer", "adam"],
                         ["--optimizer", "adam"]),
    "four, 1f1b-flush": (4, "1f1b-flush", ["--straight"], []),
}
# Stages that share weights are trained with a flush only.
FLUSHING = ["tied_mlp", "awd_lm", "transformer"]
MICRO_BATCHES = 4
STEPS = 4
WITHIN = 0.10
NAMED = 0.95


def torch_models():
    """Models of PyTorch, by name: the module, a batch of `size` samples, the samples of a step."""
    import torch
    from torch import nn

    class Block(nn.Module):
        def __init__(self, width, heads, dropout=0.0):
            super().__init__()
            self.norm1, self.norm2 = nn.LayerNorm(width), nn.LayerNorm(width)
            self.attention = nn.MultiheadAttention(width, heads, dropout, batch_first=True)
            self.up, self.down = nn.Linear(width, 4 * width), nn.Linear(4 * width, width)
            self.dropout = nn.Dropout(dropout)

        def forward(self, x):
            y = self.norm1(x)
            x = x + self.dropout(self.attention(y, y, y, need_weights=False)[0])
            return x + self.dropout(self.down(nn.functional.gelu(self.up(self.norm2(x)))))

    class Low(nn.Module):
        """A frozen layer with an adapter of rank 8."""

        def __init__(self, inputs, outputs):
            super().__init__()
            self.base = nn.Linear(inputs, outputs).requires_grad_(False)
            self.a, self.b = nn.Linear(inputs, 8, False), nn.Linear(8, outputs, False)

        def forward(self, x):
            return self.base(x) + self.b(self.a(x))

    class LowBlock(nn.Module):
        def __init__(self, width):
            super().__init__()
            self.norm = nn.LayerNorm(width)
            self.up, self.down = Low(width, 4 * width), Low(4 * width, width)

        def forward(self, x):
            return x + self.down(nn.functional.gelu(self.up(self.norm(x))))

    class Tokens(nn.Module):
        def __init__(self, blocks, width, frozen=False):
            super().__init__()
            self.embedding = nn.Embedding(1000, width).requires_grad_(not frozen)
            self.blocks = nn.ModuleList(blocks)
            self.head = nn.Linear(width, 10)

        def forward(self, x):
            x = self.embedding(x)
            for block in self.blocks:
                x = block(x)
            return self.head(x.mean(1))

    class Recurrent(nn.Module):
        def __init__(self, width):
            super().__init__()
            self.embedding = nn.Embedding(1000, width)
            self.layers = nn.ModuleList(nn.LSTM(width, width, batch_first=True) for _ in range(4))
            self.head = nn.Linear(width, 10)

        def forward(self, x):
            x = self.embedding(x)
            for layer in self.layers:
                x = layer(x)[0]
            return self.head(x[:, -1])

    def convolutions(width, depth):
        layers, inputs = [], 3
        for _ in range(depth):
            layers += [nn.Conv2d(inputs, width, 3, padding=1), nn.BatchNorm2d(width), nn.ReLU()]
            inputs = width
        return nn.Sequential(*layers, nn.AdaptiveAvgPool2d(1), nn.Flatten(),
                             nn.Linear(width, 10))

    class Patches(nn.Module):
        def __init__(self, width, depth):
            super().__init__()
            self.patches = nn.Conv2d(3, width, 8, 8)
            self.blocks = nn.ModuleList(Block(width, 4) for _ in range(depth))
            self.head = nn.Linear(width, 10)

        def forward(self, x):
            x = self.patches(x).flatten(2).transpose(1, 2)
            for block in self.blocks:
                x = block(x)
            return self.head(x.mean(1))

    torch.manual_seed(1)
    tokens = torch.randint(0, 1000, (4, 64))
    images = torch.randn(4, 3, 64, 64)
    return {
        "gpt": (Tokens([Block(256, 4) for _ in range(4)], 256), tokens, 64),
        "lora": (Tokens([LowBlock(512) for _ in range(4)], 512, frozen=True), tokens, 64),
        "lstm": (Recurrent(256), tokens, 64),
        "dropout": (Tokens([Block(256, 4, 0.1) for _ in range(4)], 256), tokens, 64),
        "batch_norm": (convolutions(32, 8), images, 32),
        "vit": (Patches(256, 4), images, 64),
    }


def exported(names, folder):
    """Words for `penstock train` by model, as ZOO has them."""
    if not names:
        return {}
    import penstock

    models = torch_models()
    result = {}
    for name in names:
        module, batch, samples = models[name]
        penstock.export(module, (batch,), folder / f"{name}.pt2")
        result[name] = (["--model", folder / f"{name}.pt2"], samples)
    return result


def profile(penstock, name, words, samples, folder):
    if samples % MICRO_BATCHES:
        raise ValueError(f"{samples} samples in {MICRO_BATCHES} micro-batches")
    run_json([penstock, "profile", *without_rate(words), "--batch-size",
              samples // MICRO_BATCHES, "-o", folder / f"{name}.json", "--json"], timeout=600)


def without_rate(words):
    return words[:words.index("--lr")] if "--lr" in words else words


def where(workers):
    """Words for `penstock plan`: several workers are processes of this host."""
    between = ["--bandwidth", "2GB/s", "--latency", "50us"] if workers > 1 else []
    return ["--workers", workers, *between]


def run_way(penstock, name, words, samples, way, folder):
    """The result of a short run as the plan says, each worker a process."""
    workers, strategy, to_plan, to_train = WAYS[way]
    if name in FLUSHING and strategy == "1f1b":
        strategy = "1f1b-flush"
    plan = folder / "plan.json"
    run_json([penstock, "plan", "--profile", folder / f"{name}.json", *where(workers),
              "--strategy", strategy, "--micro-batches", MICRO_BATCHES, "-o", plan, "--json",
              *to_plan], timeout=600)
    command = ["train", *words, "--data", "synthetic", "--train-samples", STEPS * samples,
               "--epochs", 1, "--batch-size", samples, "--plan", plan, "--no-eval", "--json",
               *to_train]
    if workers > 1:
        command = ["launch", "-n", workers, "--", *command]
    return run_json([penstock, *command], timeout=600)


def row_of(name, way, result):
    measured = result["rank_peak_tensor_bytes"] or [result["peak_tensor_bytes"]]
    predicted = [worker["predicted_memory_bytes"] for worker in result["workers"]]
    ratios = [one / other for one, other in zip(measured, predicted, strict=True)]
    worst = max(range(len(ratios)), key=lambda w: abs(ratios[w] - 1))
    memory = result["memory"]
    return {"model": name, "way": way, "measured": measured, "predicted": predicted,
            "worst_worker": worst, "ratio": ratios[worst], "memory": memory,
            "furthest": furthest_kind(memory["workers"][worst]),
            "named": [process["named_share"] for process in memory["processes"]]}


def furthest_kind(worker):
    """"activations +1.2 MB": the kind in which a worker's peak is furthest off the prediction."""
    measured, predicted = worker["measured"], worker.get("predicted", {})
    differences = {kind: measured[kind] - predicted.get(kind, 0) for kind in measured}
    kind = max(differences, key=lambda name: abs(differences[name]))
    return f"{kind} {differences[kind] / 1e6:+.1f} MB"


def named_range(row):
    """The share of its process's peak that has a name: of the one that is furthest from all."""
    return max(row["named"], key=lambda share: abs(share - 1))


def rows_of(penstock, name, words, samples, folder):
    """A row per way to train."""
    for way in WAYS:
        try:
            yield row_of(name, way, run_way(penstock, name, words, samples, way, folder))
        except Failed as failure:
            print(f"memory.py: {name}, {way}: {failure}", file=sys.stderr)
            yield {"model": name, "way": way, "error": str(failure)}


def table(rows):
    lines = ["| model | way | worker | measured, MB | predicted | measured / predicted | furthest "
             "| named |", "|---|---|---|---|---|---|---|---|"]
    for row in rows:
        if "error" in row:
            lines.append(f"| {row['model']} | {row['way']} | | {row['error'][:60]} | | | | |")
            continue
        w = row["worst_worker"]
        lines.append(f"| {row['model']} | {row['way']} | {w} | {row['measured'][w] / 1e6:.1f} | "
                     f"{row['predicted'][w] / 1e6:.1f} | {row['ratio']:.2f} | {row['furthest']} | "
                     f"{100 * named_range(row):.1f} % |")
    return "\n".join(lines)


def worst_of_models(rows):
    """A line per model, and how many are within WITHIN in every run, and named by NAMED."""
    lines, good, models = [], 0, list(dict.fromkeys(row["model"] for row in rows))
    named = 0
    for model in models:
        ratios = [row.get("ratio", 0) for row in rows if row["model"] == model]
        worst = max(ratios, key=lambda ratio: abs(ratio - 1))
        good += abs(worst - 1) <= WITHIN
        named += all("named" in row and abs(named_range(row) - 1) <= 1 - NAMED
                     for row in rows if row["model"] == model)
        lines.append(f"{model:12} {min(ratios):.2f} to {max(ratios):.2f}")
    lines.append(f"{good} of {len(models)} within {100 * WITHIN:.0f} % in every run")
    lines.append(f"{named} of {len(models)} with {100 * NAMED:.0f} % of every peak named")
    return "\n".join(lines)


def main():
    parser = argparse.ArgumentParser(description=__doc__,
                                     formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--penstock", default=REPOSITORY / "build" / "release" / "penstock",
                        type=pathlib.Path)
    parser.add_argument("--models", nargs="+", choices=[*ZOO, *EXPORTED],
                        default=[*ZOO, *EXPORTED])
    parser.add_argument("--output", default="memory.json", type=pathlib.Path)
    args = parser.parse_args()
    with tempfile.TemporaryDirectory() as name:
        folder = pathlib.Path(name)
        models = {name: ZOO[name] for name in args.models if name in ZOO}
        models |= exported([name for name in args.models if name in EXPORTED], folder)
        rows = []
        for name, (words, samples) in models.items():
            profile(args.penstock, name, words, samples, folder)
            for row in rows_of(args.penstock, name, words, samples, folder):
                rows.append(row)
                print(f"{name}, {row['way']}: {row.get('ratio', 0):.2f}", file=sys.stderr)
    args.output.write_text(json.dumps({"machine": describe_machine(), "rows": rows}, indent=1))
    print(table(rows) + "\n\n" + worst_of_models(rows))
    return 1 if any("error" in row for row in rows) else 0


if __name__ == "__main__":
    sys.exit(main())
