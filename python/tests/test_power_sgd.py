"""Replicas under powersgd:R against PyTorch's own PowerSGD: the communication hook of
DistributedDataParallel, by two processes with gloo, from the same weights and first factors. The
losses of 20 steps are the same.

test_power_sgd.py [-k NAME]
"""

import json
import os
import struct
import subprocess
import sys
import tempfile
import unittest
from pathlib import Path

import torch
from torch import nn

STEPS, RANK, RATE, MOMENTUM = 20, 3, 0.05, 0.9


def made():
    """The model and its data; the same in every process. A factor is known by its width."""
    torch.manual_seed(1)
    model = nn.Sequential(nn.Linear(10, 24), nn.Tanh(), nn.Linear(24, 20), nn.Tanh(),
                          nn.Linear(20, 3))  # fmt: skip
    x = torch.randn(STEPS, 64, 10)
    return model, x, (x.abs() @ torch.randn(10, 3)).argmax(2)


def rank_main(folder):
    import torch.distributed as dist
    from torch.distributed.algorithms.ddp_comm_hooks import powerSGD_hook as power_sgd

    torch.set_num_threads(1)
    rank = int(os.environ["RANK"])
    dist.init_process_group("gloo", init_method=f"file://{folder}/store", rank=rank, world_size=2)
    model, x, y = made()
    model.load_state_dict(torch.load(folder / "model.pt"))
    factors = torch.load(folder / "factors.pt")
    randn = torch.randn

    def first_factor(*shape, **more):
        found = factors.get(shape[-2]) if len(shape) == 3 else None
        return randn(*shape, **more) if found is None else found.expand(*shape)

    torch.randn = first_factor
    ddp = nn.parallel.DistributedDataParallel(model)
    state = power_sgd.PowerSGDState(None, matrix_approximation_rank=RANK, start_powerSGD_iter=2,
                                    min_compression_rate=1)  # fmt: skip
    ddp.register_comm_hook(state, power_sgd.powerSGD_hook)
    for _ in range(2):  # without factors; DDP makes its buckets anew meanwhile
        nn.functional.cross_entropy(ddp(x[0]), y[0]).backward()
    optimizer = torch.optim.SGD(ddp.parameters(), lr=RATE, momentum=MOMENTUM)
    losses = []
    for step in range(STEPS):
        own = slice(32 * rank, 32 * rank + 32)
        loss = nn.functional.cross_entropy(ddp(x[step, own]), y[step, own])
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        both = loss.detach().clone()
        dist.all_reduce(both)
        losses.append(both.item() / 2)
    (folder / f"losses{rank}.json").write_text(json.dumps(losses))
    dist.destroy_process_group()


def states_of(checkpoint):
    """The tensors of a checkpoint's layers, by name."""
    tensors = {}
    for path in checkpoint.rglob("*.safetensors"):
        content = path.read_bytes()
        size = struct.unpack("<Q", content[:8])[0]
        for name, entry in json.loads(content[8 : 8 + size]).items():
            if name == "__metadata__":
                continue
            begin, end = (8 + size + at for at in entry["data_offsets"])
            numbers = torch.frombuffer(bytearray(content[begin:end]), dtype=torch.float32) if (
                end > begin) else torch.empty(0)  # fmt: skip
            tensors[f"{path.name}.{name}"] = numbers.view(entry["shape"])
    return tensors


class PowerSgdTest(unittest.TestCase):
    def test_losses_are_those_of_pytorchs_hook(self):
        import penstock

        torch.set_num_threads(1)
        model, x, y = made()
        with tempfile.TemporaryDirectory() as name:
            folder = Path(name)
            torch.save(model.state_dict(), folder / "model.pt")
            trainer = penstock.Trainer(model, x[0], batch_size=64, micro_batches=2, strategy="dp",
                                       workers=2, sync=f"powersgd:{RANK}", optimizer="sgd",
                                       lr=RATE, momentum=MOMENTUM)  # fmt: skip
            states = states_of(Path(trainer.save(folder / "checkpoint")))
            factors = {state.shape[0]: state for name, state in states.items()
                       if "powersgd.factor" in name and state.numel() > 0}  # fmt: skip
            self.assertEqual(sorted(factors), [10, 24])  # 69 numbers for the 60 of the last
            torch.save(factors, folder / "factors.pt")
            ranks = [
                subprocess.Popen(
                    [sys.executable, __file__, name],
                    env={**os.environ, "RANK": str(rank), "OMP_NUM_THREADS": "1"},
                    stdout=subprocess.DEVNULL, stderr=subprocess.PIPE, text=True,
                )
                for rank in range(2)
            ]  # fmt: skip
            losses = [trainer.step(x[step], y[step])["loss"] for step in range(STEPS)]
            errors = [process.communicate(timeout=300)[1] for process in ranks]
            for process, error in zip(ranks, errors):
                self.assertEqual(process.returncode, 0, error[-3000:])
            expected = json.loads((folder / "losses0.json").read_text())
        largest = max(abs(a / b - 1) for a, b in zip(losses, expected))
        print(f"losses {losses[0]:.4f} to {losses[-1]:.4f}, apart by {largest:.1e}",
              file=sys.stderr)  # fmt: skip
        self.assertLess(largest, 1e-4)
        self.assertLess(losses[-1], losses[0])


if __name__ == "__main__":
    if "RANK" in os.environ and len(sys.argv) == 2:
        rank_main(Path(sys.argv[1]))
    else:
        unittest.main()
