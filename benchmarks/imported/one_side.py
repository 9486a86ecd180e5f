#!/usr/bin/env python3
"""Steps of SGD on one thread, by eager PyTorch or by penstock.Trainer; prints a line of JSON.

one_side.py MODEL eager|penstock STEPS
one_side.py FOLDER epoch BATCH      program.pt2, plan.json, data.npz: one epoch by Trainer.fit
one_side.py FOLDER write STEPS MODEL    writes them for that many steps, two workers
"""

import json
import pathlib
import resource
import statistics
import sys
import time

import numpy as np
import torch
import torch.nn.functional as F
from models import case

WARMUP = 2

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


def write(folder, steps, name):
    import penstock

    model, x, y = case(name)
    trainer = penstock.Trainer(model, x, strategy="1f1b-flush", workers=2, batch_size=len(x),
                               lr=1e-4, progress=False)
    penstock.export(model, x, folder / "program.pt2")
    (folder / "plan.json").write_text(json.dumps(trainer.plan))
    np.savez(folder / "data.npz", x=torch.cat([x] * steps).numpy(),
             y=torch.cat([y] * steps).numpy())
    return {"batch": len(x)}


def epoch(folder, batch):
    """Times of the steps after the first ones, as `penstock train --warmup-steps` counts them."""
    import penstock

    data = np.load(folder / "data.npz")
    trainer = penstock.Trainer(folder / "program.pt2", plan=folder / "plan.json",
                               batch_size=batch, lr=1e-4, progress=False)
    samples = torch.utils.data.TensorDataset(*map(torch.from_numpy, (data["x"], data["y"])))
    loader = torch.utils.data.DataLoader(samples, batch_size=batch, shuffle=False)
    ends, losses = [], []

    def seen(step):
        ends.append(time.perf_counter())
        losses.append(step["loss"])

    trainer.fit(loader, callbacks=[seen])
    return {"seconds": (ends[-1] - ends[WARMUP - 1]) / (len(ends) - WARMUP), "losses": losses}


def main():
    if sys.argv[2] in ("write", "epoch"):
        folder, number = pathlib.Path(sys.argv[1]), int(sys.argv[3])
        print(json.dumps(write(folder, number, sys.argv[4]) if sys.argv[2] == "write"
                         else epoch(folder, number)))
        return
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
