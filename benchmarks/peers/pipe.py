#!/usr/bin/python3
"""torch.distributed.pipeline.sync.Pipe (GPipe) over two CPU partitions. Prints one JSON line, for
the best number of chunks.

Pipe makes every module of the Sequential that lives on the CPU a partition, and gives all
partitions of one device one worker thread; it offers no other way to run on CPUs. `--checkpoint
except_last` is its default (recompute in backward), `never` its fastest setting.
"""

import os
import tempfile

import common

parser = common.parse_arguments(__doc__, default_threads=1)
parser.add_argument("--chunks", default="1,2,4,8", help="numbers of micro-batches to try")
parser.add_argument("--checkpoint", default="except_last",
                    choices=["always", "except_last", "never"],
                    help="what is recomputed in backward")
parser.add_argument(
    "--cut", type=int, default=0,
    help="layers in the first partition; 0: cut so that the parameters or the work are even")
args = parser.parse_args()
common.use_threads(args.threads)

import torch  # noqa: E402
from torch import nn  # noqa: E402
from torch.distributed import rpc  # noqa: E402
from torch.distributed.pipeline.sync import Pipe  # noqa: E402


def measure(chunks, cut):
    layers = common.make_layers(args)
    model = Pipe(nn.Sequential(nn.Sequential(*layers[:cut]), nn.Sequential(*layers[cut:])),
                 chunks=chunks, checkpoint=args.checkpoint)
    optimizer = common.make_optimizer(args, model.parameters())
    loss_function = nn.CrossEntropyLoss()
    batches = common.make_batches(args)

    def step(number):
        inputs, targets = batches[number % len(batches)]
        optimizer.zero_grad(set_to_none=True)
        loss = loss_function(model(inputs).local_value(), targets)
        loss.backward()
        optimizer.step()
        return loss.item()

    report = common.timed_steps(args, step)
    report["partitions"] = len(model.partitions)
    return report


def main():
    os.environ.setdefault("MASTER_ADDR", "127.0.0.1")
    os.environ.setdefault("MASTER_PORT", "0")
    os.environ.setdefault("TP_SOCKET_IFNAME", "lo")
    os.environ.setdefault("GLOO_SOCKET_IFNAME", "lo")
    with tempfile.TemporaryDirectory() as folder:
        meeting = "file://" + os.path.join(folder, "meeting")
        options = rpc.TensorPipeRpcBackendOptions(init_method=meeting)
        rpc.init_rpc("worker", rank=0, world_size=1, rpc_backend_options=options)
        try:
            count = len(common.make_layers(args))
            # Half of the multiply-adds on each side: the middle hidden layer, or the end of the
            # second block of convolutions.
            cut = args.cut or (count // 2 if args.model == "mlp" else 7)
            reports = {chunks: measure(chunks, cut) for chunks in map(int, args.chunks.split(","))}
        finally:
            rpc.shutdown()
    best = max(reports, key=lambda chunks: reports[chunks]["samples_per_s"])
    report = dict(reports[best], chunks=best, torch=torch.__version__)
    report["samples_per_s_by_chunks"] = {
        str(chunks): reports[chunks]["samples_per_s"] for chunks in reports
    }
    common.print_report(report)


main()
