"""What the peers share: the same layers, data, loss and optimiser as Penstock's, and how steps are
timed.

Importing this module sets the number of intra-op threads for every thread of the process, so import
it before torch and call parse_arguments() first.
"""

import argparse
import json
import os
import sys
import time


def parse_arguments(description, default_threads):
    parser = argparse.ArgumentParser(description=description)
    parser.add_argument("--model", required=True, choices=["mlp", "vgg_small"])
    parser.add_argument("--batch-size", type=int, required=True,
                        help="samples per optimiser step, over all processes")
    parser.add_argument("--steps", type=int, default=10, help="timed steps")
    parser.add_argument("--warmup", type=int, default=3, help="untimed steps before them")
    parser.add_argument("--threads", type=int, default=default_threads,
                        help="intra-op threads (per process)")
    parser.add_argument("--width", type=int, default=4096, help="mlp: hidden width")
    parser.add_argument("--depth", type=int, default=5, help="mlp: hidden layers")
    parser.add_argument("--lr", type=float, default=0.01)
    parser.add_argument("--seed", type=int, default=1)
    return parser


def use_threads(threads):
    """Every OpenMP pool of this process and its children gets this many threads. Before torch is
    imported only."""
    assert "torch" not in sys.modules
    os.environ["OMP_NUM_THREADS"] = str(threads)
    os.environ["OPENBLAS_NUM_THREADS"] = str(threads)


def mlp_layers(width, depth):
    from torch import nn

    layers = []
    features = 784
    for _ in range(depth):
        layers += [nn.Linear(features, width), nn.ReLU()]
        features = width
    return layers + [nn.Linear(features, 10)]


def vgg_small_layers():
    """penstock/model/zoo/small.cpp: make_vgg_small."""
    from torch import nn

    layers = []
    channels = 1
    for width in [32, 64, 128]:
        for _ in range(2):
            layers += [nn.Conv2d(channels, width, 3, padding=1), nn.ReLU()]
            channels = width
        layers.append(nn.MaxPool2d(2))
    return layers + [nn.Flatten(), nn.Linear(128 * 4 * 4, 256), nn.ReLU(), nn.Linear(256, 10)]


def make_layers(args):
    import torch

    torch.manual_seed(args.seed)
    return mlp_layers(args.width, args.depth) if args.model == "mlp" else vgg_small_layers()


def make_batches(args, count=8):
    """Random inputs and labels, generated before the clock starts; steps go round them."""
    import torch

    generator = torch.Generator().manual_seed(args.seed)
    shape = (784,) if args.model == "mlp" else (1, 32, 32)
    return [
        (
            torch.randn((args.batch_size, *shape), generator=generator),
            torch.randint(0, 10, (args.batch_size,), generator=generator),
        )
        for _ in range(count)
    ]


def make_optimizer(args, parameters):
    import torch

    return torch.optim.SGD(parameters, lr=args.lr, momentum=0.9)


def timed_steps(args, step):
    """Calls step(number) warmup + steps times; returns the report."""
    losses = [step(number) for number in range(args.warmup)]
    times = []
    begin = time.perf_counter()
    for number in range(args.warmup, args.warmup + args.steps):
        before = time.perf_counter()
        losses.append(step(number))
        times.append(1000 * (time.perf_counter() - before))
    elapsed = time.perf_counter() - begin
    return {
        "samples_per_s": args.batch_size * args.steps / elapsed,
        "step_ms": [round(value, 3) for value in times],
        "final_loss": losses[-1],
    }


def print_report(report):
    print(json.dumps(report), flush=True)
