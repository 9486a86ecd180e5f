"""Tensors in memory of tcmalloc: PyTorch must not notice."""

import ctypes
import os
import pickle
import subprocess
import sys
import unittest

import torch

BEFORE = torch.arange(1000.0)  # the import changes where tensors come from

from penstock import _core  # noqa: E402
from torch import nn  # noqa: E402
from torch.utils.data import DataLoader, TensorDataset  # noqa: E402

import penstock  # noqa: E402

TRAIN = """
import torch, penstock
torch.manual_seed(1)
x, y = torch.randn(64, 6), torch.randint(0, 3, (64,))
net = torch.nn.Sequential(torch.nn.Linear(6, 9), torch.nn.Tanh(), torch.nn.Linear(9, 3))
trainer = penstock.Trainer(net, x[:4], strategy="gpipe", workers=2, batch_size=16, lr=0.1,
                           progress=False)
print(penstock._core.TENSOR_MEMORY, [epoch["loss"] for epoch in trainer.fit(x, y, epochs=3)])
"""


def has_tcmalloc():
    try:
        ctypes.CDLL("libtcmalloc_minimal.so.4")
    except OSError:
        return False
    return True


def train(**environment):
    done = subprocess.run([sys.executable, "-c", TRAIN], capture_output=True, text=True, check=True,
                          env={**os.environ, **environment})  # fmt: skip
    return done.stdout.split(" ", 1)


def trainer_of(net, x):
    return penstock.Trainer(net, x[:4], strategy="serial", workers=1, micro_batches=1,
                            batch_size=16, lr=0.1, progress=False)  # fmt: skip


def is_mapped(tensor):
    """Whether the tensor's memory is that of a file."""
    begin = tensor.data_ptr()
    with open("/proc/self/maps") as maps:
        for line in maps:
            low, high = (int(edge, 16) for edge in line.split()[0].split("-"))
            if low <= begin < high:
                return ".pt2" in line
    return False


class Mapped(unittest.TestCase):
    """A module's large tensors lie in the file from which the trainer has its own."""

    def setUp(self):
        torch.manual_seed(1)
        self.net = nn.Sequential(nn.Linear(512, 512), nn.Tanh(), nn.Linear(512, 3))
        self.x, self.y = torch.randn(16, 512), torch.randint(0, 3, (16,))

    def test_they_keep_their_values_and_can_be_written(self):
        before = {name: value.clone() for name, value in self.net.state_dict().items()}
        weight = self.net[0].weight
        trainer = trainer_of(self.net, self.x)
        self.assertTrue(is_mapped(self.net[0].weight))
        self.assertFalse(is_mapped(self.net[2].weight), "it is small")
        self.assertIs(self.net[0].weight, weight)
        for name, value in self.net.state_dict().items():
            self.assertTrue(torch.equal(value, before[name]), name)
        trainer.fit(self.x, self.y)
        self.assertTrue(torch.equal(self.net[0].weight, before["0.weight"]))
        self.net.load_state_dict(trainer.state_dict())
        self.assertTrue(torch.equal(self.net[0].weight, trainer.state_dict()["0.weight"]))
        del trainer  # and the file
        torch.optim.SGD(self.net.parameters(), lr=0.1).step()
        self.net(self.x).sum().backward()
        self.assertEqual(self.net[0].weight.grad.shape, (512, 512))

    def test_what_somebody_else_sees_stays(self):
        seen = self.net.state_dict()["0.weight"]
        trainer_of(self.net, self.x)
        self.assertFalse(is_mapped(self.net[0].weight))
        self.assertEqual(seen.data_ptr(), self.net[0].weight.data_ptr())

    def test_a_weight_with_two_names_stays_one(self):
        net = nn.Sequential(nn.Linear(512, 512), nn.Linear(512, 512))
        net[1].weight = net[0].weight
        trainer_of(net, self.x)
        self.assertTrue(is_mapped(net[0].weight))
        self.assertIs(net[1].weight, net[0].weight)


class Memory(unittest.TestCase):
    def test_the_environment_chooses_and_the_numbers_are_the_same(self):
        own, system = train(), train(PENSTOCK_ALLOCATOR="system")
        self.assertEqual(own[0], "tcmalloc" if has_tcmalloc() else "system")
        self.assertEqual(system[0], "system")
        self.assertEqual(own[1], system[1])

    def test_tensors_from_before_the_import_end_well(self):
        global BEFORE
        BEFORE.resize_(500_000)
        self.assertEqual(BEFORE[999].item(), 999.0)
        BEFORE = None

    def test_empty_resized_shared_and_pickled_tensors(self):
        self.assertEqual(torch.empty(0).numel(), 0)
        tensor = torch.arange(10)
        tensor.resize_(100_000)
        self.assertEqual(tensor[:10].tolist(), list(range(10)))
        array = torch.arange(1000.0).numpy()  # keeps the memory when the tensor is gone
        self.assertEqual(array.sum(), 499500)
        self.assertTrue(torch.equal(pickle.loads(pickle.dumps(tensor[:10])), tensor[:10]))
        self.assertEqual(torch.arange(5).share_memory_().sum().item(), 10)

    def test_impossible_sizes_are_an_error(self):
        with self.assertRaisesRegex(RuntimeError, "emory"):
            torch.empty(1 << 52, dtype=torch.uint8)
        self.assertEqual(torch.ones(3).sum().item(), 3)

    def test_loaders_in_processes_of_their_own(self):
        torch.manual_seed(1)
        x, y = torch.randn(64, 6), torch.randint(0, 3, (64,))
        net = nn.Sequential(nn.Linear(6, 9), nn.Tanh(), nn.Linear(9, 3))
        trainer = penstock.Trainer(net, x[:4], strategy="gpipe", workers=2, batch_size=16, lr=0.1,
                                   progress=False)  # fmt: skip
        loader = DataLoader(TensorDataset(x, y), batch_size=16, num_workers=2)
        history = trainer.fit(loader, epochs=2)
        self.assertEqual(history[-1]["samples"], 64)

    def test_the_profiler_still_counts_memory(self):
        with torch.profiler.profile(profile_memory=True) as profile:
            torch.empty(1 << 20, dtype=torch.uint8)
        sizes = [event.self_cpu_memory_usage for event in profile.events()]
        self.assertGreaterEqual(max(sizes, default=0), 1 << 20)
        self.assertIn(_core.TENSOR_MEMORY, ("tcmalloc", "system"))


if __name__ == "__main__":
    unittest.main()
