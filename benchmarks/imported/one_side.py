#!/usr/bin/env python3
"""Steps of SGD on one thread, by eager PyTorch or by penstock.Trainer; prints a line of JSON.

one_side.py MODEL eager|penstock STEPS
"""

import json
import resource
import statistics
import sys
import time

import torch
import torch.nn.functional as F
from models import case

torch.set_num_threads(1)


def eager_step(model, x, y):
    optimizer = torch.optim.SGD(model.parameters(), lr=1e-4)

    def step():
        optimizer.zero_grad()
        loss = F.cross_entropy(model(x).flatten(0, -2), y.flatten())
        loss.backward()
        optimizer.step()
        return loss.item()

    return step


def penstock_step(model, x, y):
    import penstock

    trainer = penstock.Trainer(model, x, strategy="serial", workers=1, batch_size=len(x),
                               micro_batches=1, lr=1e-4, progress=False)
    return lambda: trainer.step(x, y)["loss"]


def main():
    name, side, steps = sys.argv[1], sys.argv[2], int(sys.argv[3])
    step = (eager_step if side == "eager" else penstock_step)(*case(name))
    losses = [step() for _ in range(2)]
    wall, faults = [], []
    for _ in range(steps):
        before, start = resource.getrusage(resource.RUSAGE_SELF), time.perf_counter()
        losses.append(step())
        wall.append(time.perf_counter() - start)
        faults.append(resource.getrusage(resource.RUSAGE_SELF).ru_minflt - before.ru_minflt)
    print(json.dumps({"seconds": statistics.median(wall), "faults": statistics.median(faults),
                      "losses": losses}))


main()
