#!/usr/bin/env python3
"""PyTorch in one process with its own intra-op threads, eager or compiled. Prints one JSON line."""

import common

parser = common.parse_arguments(__doc__, default_threads=2)
parser.add_argument("--compile", action="store_true", help="torch.compile of the model")
args = parser.parse_args()
common.use_threads(args.threads)

import torch  # noqa: E402
from torch import nn  # noqa: E402

model = nn.Sequential(*common.make_layers(args))
if args.compile:
    model.compile()
optimizer = common.make_optimizer(args, model.parameters())
loss_function = nn.CrossEntropyLoss()
batches = common.make_batches(args)


def step(number):
    inputs, targets = batches[number % len(batches)]
    optimizer.zero_grad(set_to_none=True)
    loss = loss_function(model(inputs), targets)
    loss.backward()
    optimizer.step()
    return loss.item()


report = common.timed_steps(args, step)
report["parameters"] = sum(p.numel() for p in model.parameters())
report["torch"] = torch.__version__
common.print_report(report)
