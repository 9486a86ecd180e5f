#!/usr/bin/env python3
"""torch DistributedDataParallel over Gloo: each process takes its share of every batch. Prints one
JSON line. Starts --processes processes on this machine; with RANK in the environment (torchrun and
others) it is that one rank instead, and the interface is GLOO_SOCKET_IFNAME's."""

import json
import os
import tempfile

import common

parser = common.parse_arguments(__doc__, default_threads=1)
parser.add_argument("--processes", type=int, default=2)
args = parser.parse_args()
common.use_threads(args.threads)

import torch  # noqa: E402
from torch import distributed, nn  # noqa: E402


def train(rank, meeting_point, report_file):
    distributed.init_process_group("gloo", init_method=meeting_point, rank=rank,
                                   world_size=args.processes)
    model = nn.parallel.DistributedDataParallel(nn.Sequential(*common.make_layers(args)),
                                                gradient_as_bucket_view=True)
    optimizer = common.make_optimizer(args, model.parameters())
    loss_function = nn.CrossEntropyLoss()
    share = slice(rank * args.batch_size // args.processes,
                  (rank + 1) * args.batch_size // args.processes)
    batches = [(inputs[share], targets[share]) for inputs, targets in common.make_batches(args)]

    def step(number):
        inputs, targets = batches[number % len(batches)]
        optimizer.zero_grad(set_to_none=False)
        loss = loss_function(model(inputs), targets)
        loss.backward()
        optimizer.step()
        return loss.item()

    report = common.timed_steps(args, step)
    if rank == 0:
        report["torch"] = torch.__version__
        with open(report_file, "w") as out:
            json.dump(report, out)
    distributed.barrier()
    distributed.destroy_process_group()


def main():
    if "RANK" in os.environ:
        args.processes = int(os.environ["WORLD_SIZE"])
        with tempfile.TemporaryDirectory() as folder:
            report_file = os.path.join(folder, "report")
            train(int(os.environ["RANK"]), "env://", report_file)
            if os.path.exists(report_file):
                with open(report_file) as report:
                    common.print_report(json.load(report))
        return
    os.environ.setdefault("GLOO_SOCKET_IFNAME", "lo")
    with tempfile.TemporaryDirectory() as folder:
        report_file = os.path.join(folder, "report")
        torch.multiprocessing.spawn(train,
                                    ("file://" + os.path.join(folder, "meeting"), report_file),
                                    nprocs=args.processes)
        with open(report_file) as report:
            common.print_report(json.load(report))


if __name__ == "__main__":
    main()
