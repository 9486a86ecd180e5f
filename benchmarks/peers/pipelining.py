#!/usr/bin/env python3
"""torch.distributed.pipelining, two processes over Gloo. Prints one JSON line: the fastest of its
schedules and numbers of micro-batches, and the speed of each."""

import json
import os
import tempfile

import common

RANKS = 2

# Layers at which stages begin, so that the work of the two processes is even. A process has one
# stage, the stages r and r + 2, or (V) the stages r and 3 - r.
CUTS = {
    "mlp": {"one": [[5]], "loop": [[4, 6, 8]], "v": [[4, 6, 8]]},
    "vgg_small": {"one": [[7], [9]], "loop": [[5, 7, 10]], "v": [[5, 10, 12]]},
}
SCHEDULES = {"GPipe": "one", "1F1B": "one", "Interleaved1F1B": "loop", "ZBVZeroBubble": "v"}

parser = common.parse_arguments(__doc__, default_threads=1)
parser.add_argument("--chunks", default="2,4,8", help="numbers of micro-batches to try")
parser.add_argument("--schedules", default=",".join(SCHEDULES), help="to try")
args = parser.parse_args()
common.use_threads(args.threads)

import torch  # noqa: E402
from torch import distributed, nn  # noqa: E402
from torch.distributed.pipelining import PipelineStage, schedules  # noqa: E402


def stages_of(rank, shape, cuts):
    """(number, layers) of each stage of this process."""
    if args.depth != 5 and args.model == "mlp":  # --quick: sizes that need no balance
        count = len(common.make_layers(args))
        cuts = [count * (k + 1) // (len(cuts) + 1) for k in range(len(cuts))]
    own = {"one": [rank], "loop": [rank, rank + RANKS], "v": [rank, 2 * RANKS - 1 - rank]}[shape]
    layers = common.make_layers(args)
    bounds = [0, *cuts, len(layers)]
    return [(s, nn.Sequential(*layers[bounds[s]:bounds[s + 1]])) for s in own]


def measure(rank, name, cuts, chunks):
    shape = SCHEDULES[name]
    count = RANKS if shape == "one" else 2 * RANKS
    parts = stages_of(rank, shape, cuts)
    stages = [PipelineStage(part, number, count, torch.device("cpu")) for number, part in parts]
    schedule = getattr(schedules, f"Schedule{name}")(
        stages[0] if shape == "one" else stages, chunks, loss_fn=nn.CrossEntropyLoss())
    optimizer = common.make_optimizer(args, nn.ModuleList(part for _, part in parts).parameters())
    batches = common.make_batches(args)
    is_first = any(number == 0 for number, _ in parts)
    is_last = any(number == count - 1 for number, _ in parts)

    def step(number):
        inputs, targets = batches[number % len(batches)]
        optimizer.zero_grad(set_to_none=True)
        losses = [] if is_last else None
        schedule.step(*([inputs] if is_first else []), target=targets if is_last else None,
                      losses=losses)
        optimizer.step()
        return sum(loss.item() for loss in losses) / len(losses) if is_last else None

    distributed.barrier()
    report = common.timed_steps(args, step)
    found = [None] * RANKS
    distributed.all_gather_object(found, report)
    report = max(found, key=lambda one: one["final_loss"] is not None)  # who has the loss
    report["samples_per_s"] = min(one["samples_per_s"] for one in found)
    return report


def train(rank, folder):
    distributed.init_process_group("gloo", init_method=f"file://{folder}/meeting", rank=rank,
                                   world_size=RANKS)
    reports = {}
    for name in args.schedules.split(","):
        for cuts in CUTS[args.model][SCHEDULES[name]]:
            for chunks in [c for c in map(int, args.chunks.split(",")) if c <= args.batch_size]:
                report = measure(rank, name, cuts, chunks)
                reports[f"{name}, {chunks} micro-batches, cut at {cuts}"] = report
    if rank == 0:
        best = max(reports, key=lambda key: reports[key]["samples_per_s"])
        report = dict(reports[best], schedule=best, torch=torch.__version__)
        report["samples_per_s_by_schedule"] = {
            key: one["samples_per_s"] for key, one in reports.items()
        }
        with open(os.path.join(folder, "report"), "w") as out:
            json.dump(report, out)
    distributed.destroy_process_group()


def main():
    os.environ.setdefault("GLOO_SOCKET_IFNAME", "lo")
    with tempfile.TemporaryDirectory() as folder:
        torch.multiprocessing.spawn(train, (folder,), nprocs=RANKS)
        with open(os.path.join(folder, "report")) as report:
            common.print_report(json.load(report))


if __name__ == "__main__":
    main()
