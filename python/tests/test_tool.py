"""The command's parts as functions."""

import contextlib
import io
import os
import subprocess
import sys
import tempfile
import unittest
from pathlib import Path

import torch
from torch import nn

import penstock


class ToolTest(unittest.TestCase):
    def setUp(self):
        self.folder = tempfile.TemporaryDirectory()
        self.addCleanup(self.folder.cleanup)
        self.model = nn.Sequential(nn.Linear(6, 8), nn.Tanh(), nn.Linear(8, 3))

    def path(self, name):
        return Path(self.folder.name) / name

    def test_from_a_module_to_a_report(self):
        costs = penstock.profile(self.model, torch.zeros(4, 6), batch_size=8, samples=1)
        self.assertEqual(len(costs["layers"]), 3)
        plan = penstock.plan(costs, workers=2, strategy="1f1b-flush", micro_batches=4)
        self.assertEqual(plan["strategy"], "1f1b-flush")
        text = penstock.schedule(plan, micro_batches=4)
        self.assertTrue(penstock.verify(text)["ok"])
        csv = penstock.schedule(plan, micro_batches=4, format="pytorch", compute_only=True)
        self.assertIn("F", csv.splitlines()[0])
        self.assertGreater(penstock.simulate(plan)["throughput_samples_per_s"], 0)
        page = penstock.report(plan, self.path("page.html"))
        self.assertIn("<html", page.read_text()[:200])

    def test_plans_count_frozen_weights(self):
        wide = nn.Linear(600, 600, bias=False)
        model = nn.Sequential(nn.Linear(6, 600), wide, nn.Tanh(), nn.Linear(600, 3))

        def plan():
            costs = penstock.profile(model, torch.zeros(4, 6), batch_size=8, samples=1)
            made = penstock.plan(costs, workers=1, strategy="serial", micro_batches=1)
            return costs, made["stages"][0]

        _, trained = plan()
        wide.weight.requires_grad_(False)
        costs, frozen = plan()
        bytes_of_wide = 4 * 600 * 600
        self.assertEqual(sum(layer["constant_bytes"] for layer in costs["layers"]
                             if "constant_bytes" in layer), bytes_of_wide)  # fmt: skip
        self.assertEqual(frozen["constant_bytes"], bytes_of_wide)
        # Neither its gradients nor its momentum are there any more.
        self.assertLess(frozen["memory_bytes"], trained["memory_bytes"] - bytes_of_wide)
        self.assertGreater(frozen["memory_bytes"], bytes_of_wide)

    def test_profiles_say_how_far_they_are(self):
        for progress, expected in (True, True), (False, False), (None, False):
            said = io.StringIO()
            with contextlib.redirect_stderr(said):
                penstock.profile("lenet5", batch_size=8, samples=1, progress=progress)
            self.assertEqual("profiling lenet5 [" in said.getvalue(), expected, said.getvalue())

    def test_errors_are_those_of_the_command(self):
        with self.assertRaisesRegex(penstock.PenstockError, "nowhere.json"):
            penstock.plan("nowhere.json", workers=2)
        with self.assertRaisesRegex(penstock.PenstockError, "unknown strategy|expected"):
            penstock.plan(penstock.profile("lenet5", samples=1), workers=2, strategy="fast")
        with self.assertRaises(ValueError):
            penstock.profile(self.model)
        with self.assertRaisesRegex(ValueError, ".pt2"):
            penstock.export(self.model, torch.zeros(4, 6), self.path("model.onnx"))
        broken = penstock.verify("0F0,0B0,0B0\n")
        self.assertFalse(broken["ok"])

    def test_the_command_itself(self):
        done = subprocess.run(
            [sys.executable, "-c", "from penstock._tool import main; main()", "--version"],
            capture_output=True, text=True, check=True, env=os.environ,
        )
        self.assertIn("penstock", done.stdout)

    def test_modules_with_keywords_are_exported(self):
        class Named(nn.Module):
            def __init__(self):
                super().__init__()
                self.fc = nn.Linear(4, 2)

            def forward(self, x, mask=None):
                return self.fc(x * mask if mask is not None else x)

        path = penstock.export(
            Named(), {"x": torch.zeros(1, 4), "mask": torch.ones(1, 4)}, self.path("named.pt2")
        )
        trainer = penstock.Trainer(path, workers=1, strategy="serial", progress=False)
        self.assertEqual(trainer.step({"x": torch.zeros(3, 4), "mask": torch.ones(3, 4)},
                                      torch.zeros(3, dtype=torch.long))["samples"], 3)


if __name__ == "__main__":
    unittest.main()
