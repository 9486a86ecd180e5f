#!/usr/bin/env python3
"""PyTorch: steps of the models that run_gpu.py compares. Prints a line of JSON per case.

peer.py write FOLDER MODEL...                 writes data.npz and, of models that Penstock imports,
                                              program.pt2, into FOLDER/MODEL
peer.py steps FOLDER STEPS DEVICE MODEL:PRECISION:HOW...   times steps on cuda:0, ... or, with one
                                              thread, on the cpu; HOW: eager, compile or graphs
                                              (torch.compile with mode="reduce-overhead")
"""

import json
import pathlib
import sys
import time

import numpy as np
import torch
import torch.nn.functional as F
from torch import nn

HERE = pathlib.Path(__file__).resolve().parent
sys.path[:0] = [str(HERE.parent / "imported"), str(HERE.parent / "peers")]

import common  # noqa: E402
import models  # noqa: E402

WARMUP = 15

#: batch, shape of a sample, classes, batches that the samples of a file make
CASES = {
    "mlp": (128, (1, 28, 28), 10, 128),
    "vgg_small": (64, (1, 32, 32), 10, 128),
    "resnet18": (64, (3, 32, 32), 10, 128),
    "resnet50": (64, (3, 224, 224), 1000, 16),
    "gpt2": (8, (512,), 50257, 128),
}


def make_model(name):
    torch.manual_seed(1)
    if name == "mlp":
        return nn.Sequential(nn.Flatten(), *common.mlp_layers(1024, 3))
    if name == "vgg_small":
        return nn.Sequential(*common.vgg_small_layers())
    if name == "gpt2":
        return models.Gpt(places=512)
    return models.resnet18(10) if name == "resnet18" else models.resnet50(1000)


def write(folder, name):
    batch, shape, classes, batches = CASES[name]
    target = folder / name
    target.mkdir(parents=True, exist_ok=True)
    random = np.random.default_rng(1)
    samples = batch * batches
    if name == "gpt2":
        tokens = random.integers(0, classes, (samples, shape[0] + 1), dtype=np.int64)
        np.savez(target / "data.npz", x=tokens[:, :-1].copy(), y=tokens[:, 1:].copy())
        model = make_model(name).train()
        size = torch.export.Dim("batch", min=1)
        program = torch.export.export(model, (torch.from_numpy(tokens[:2, :-1].copy()),),
                                      dynamic_shapes=({0: size},))
        torch.export.save(program, target / "program.pt2")
        return
    np.savez(target / "data.npz", x=random.standard_normal((samples, *shape), dtype=np.float32),
             y=random.integers(0, classes, samples, dtype=np.int64))


def steps(folder, name, precision, how, count, device):
    batch = CASES[name][0]
    data = np.load(folder / name / "data.npz")
    x = torch.from_numpy(data["x"]).split(batch)
    y = torch.from_numpy(data["y"]).split(batch)
    on_gpu = torch.device(device).type == "cuda"
    if on_gpu:
        x, y = [part.pin_memory() for part in x], [part.pin_memory() for part in y]
    else:
        torch.set_num_threads(1)
    torch.backends.cuda.matmul.allow_tf32 = precision == "tf32"
    torch.backends.cudnn.allow_tf32 = precision == "tf32"
    torch.set_default_device(device)
    model = make_model(name)
    run = model
    if how != "eager":
        run = torch.compile(model, mode="reduce-overhead" if how == "graphs" else None)
    optimizer = torch.optim.SGD(model.parameters(), lr=1e-3, momentum=0.9)
    losses = []

    def step(number):
        inputs = x[number % len(x)].to(device, non_blocking=True)
        targets = y[number % len(y)].to(device, non_blocking=True)
        optimizer.zero_grad(set_to_none=True)
        with torch.autocast("cuda" if on_gpu else "cpu", torch.bfloat16,
                            enabled=precision == "bfloat16"):
            loss = F.cross_entropy(run(inputs).flatten(0, -2), targets.flatten())
        loss.backward()
        optimizer.step()
        losses.append(loss.detach().clone())

    for number in range(WARMUP):
        step(number)
    if on_gpu:
        torch.cuda.synchronize()
        torch.cuda.reset_peak_memory_stats()
    start = time.perf_counter()
    for number in range(WARMUP, WARMUP + count):
        step(number)
    if on_gpu:
        torch.cuda.synchronize()
    seconds = time.perf_counter() - start
    found = {"samples_per_s": batch * count / seconds, "final_loss": losses[-1].item()}
    if on_gpu:
        found["peak_memory_bytes"] = torch.cuda.max_memory_allocated()
    return found


def main():
    verb, folder = sys.argv[1], pathlib.Path(sys.argv[2])
    if verb == "write":
        for name in sys.argv[3:]:
            write(folder, name)
        return
    device = sys.argv[4]
    for case in sys.argv[5:]:
        name, precision, how = case.split(":")
        try:
            result = steps(folder, name, precision, how, int(sys.argv[3]), device)
        except Exception as error:  # the next case is still wanted
            result = {"error": f"{type(error).__name__}: {error}"[:300]}
        print(json.dumps({"case": case, "torch": torch.__version__, **result}), flush=True)
        torch._dynamo.reset()
        if torch.cuda.is_available():
            torch.cuda.empty_cache()


if __name__ == "__main__":
    main()
