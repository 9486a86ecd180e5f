"""The Trainer: the same numbers as PyTorch, whatever the cut."""

import json
import subprocess
import sys
import tempfile
import threading
import unittest
from pathlib import Path

import numpy as np
import torch
from torch import nn
from torch.utils.data import DataLoader, TensorDataset

import penstock


class Net(nn.Module):
    """A skip connection, a tied weight, a buffer."""

    def __init__(self, dropout=0.0):
        super().__init__()
        self.first = nn.Linear(6, 12)
        self.second = nn.Linear(12, 12)
        self.third = nn.Linear(12, 12)
        self.third.weight = self.second.weight
        self.drop = nn.Dropout(dropout)
        self.norm = nn.BatchNorm1d(12)
        self.head = nn.Linear(12, 3)

    def forward(self, x):
        x = torch.tanh(self.first(x))
        x = self.drop(x + torch.tanh(self.second(x)))
        return self.head(self.norm(torch.tanh(self.third(x)) + x))


class TwoInputs(nn.Module):
    def __init__(self):
        super().__init__()
        self.embed = nn.Embedding(10, 8)
        self.head = nn.Linear(8, 10)

    def forward(self, ids, scale):
        return self.head(self.embed(ids) * scale[:, :, None])


def samples(count=96, seed=3):
    torch.manual_seed(seed)
    x = torch.randn(count, 6)
    return x, (x[:, :3] * 2 + x[:, 3:]).argmax(1)


def trained_by_torch(model, batches, loss, **options):
    optimizer = torch.optim.SGD(model.parameters(), **options)
    model.train()
    losses = []
    for x, y in batches:
        optimizer.zero_grad()
        value = loss(model(x), y)
        value.backward()
        optimizer.step()
        losses.append(value.item())
    return losses


def quick(model, example, **options):
    options = {"workers": 2, "batch_size": 24, "lr": 0.1, "progress": False, **options}
    return penstock.Trainer(model, example, **options)


class TrainerTest(unittest.TestCase):
    def setUp(self):
        torch.manual_seed(1)
        torch.set_num_threads(1)

    def test_steps_are_those_of_pytorch(self):
        x, y = samples()
        batches = [(x[i : i + 24], y[i : i + 24]) for i in range(0, 96, 24)]
        model = Net()
        for strategy in ["serial", "1f1b-flush", "dp"]:
            with self.subTest(strategy=strategy):
                own = Net()
                own.load_state_dict(model.state_dict())
                # Batch norm takes the statistics of a micro-batch: one for each step.
                trainer = quick(
                    own, x[:4], strategy=strategy, workers=1 if strategy == "serial" else 2,
                    micro_batches=1 if strategy != "dp" else None, momentum=0.9, weight_decay=0.01,
                )
                losses = [trainer.step(*batch)["loss"] for batch in batches]
                if strategy == "dp":
                    self.assertLess(losses[-1], losses[0])
                    continue
                expected = trained_by_torch(
                    own, batches, nn.CrossEntropyLoss(), lr=0.1, momentum=0.9, weight_decay=0.01
                )
                np.testing.assert_allclose(losses, expected, rtol=1e-5)
                trained = trainer.state_dict()
                for name, value in own.state_dict().items():
                    torch.testing.assert_close(
                        trained[name].to(value.dtype), value, rtol=1e-4, atol=1e-5, msg=name
                    )

    def test_adam_is_that_of_pytorch(self):
        x, y = samples(48)
        model = Net()
        trainer = quick(
            model, x[:4], strategy="serial", workers=1, optimizer="Adam", lr=0.01,
            betas=(0.8, 0.99), micro_batches=1,
        )
        losses = [trainer.step(x, y)["loss"] for _ in range(5)]
        optimizer = torch.optim.Adam(model.parameters(), lr=0.01, betas=(0.8, 0.99))
        for found in losses:
            optimizer.zero_grad()
            loss = nn.functional.cross_entropy(model(x), y)
            loss.backward()
            optimizer.step()
            self.assertAlmostEqual(found, loss.item(), places=4)

    def test_cuts_do_not_change_anything(self):
        x, y = samples()
        weights = []
        for strategy, workers in [("serial", 1), ("1f1b-flush", 2), ("gpipe", 3), ("zb-h1", 2)]:
            torch.manual_seed(1)
            trainer = quick(
                Net(dropout=0.3), x[:4], strategy=strategy, workers=workers, micro_batches=4
            )
            trainer.fit(x, y, epochs=2)
            weights.append(trainer.state_dict())
        for others in weights[1:]:
            for name, value in weights[0].items():
                self.assertTrue(torch.equal(value, others[name]), name)

    def test_loaders_give_what_tensors_give(self):
        x, y = samples()
        results = []
        for strategy in ["1f1b-flush", "1f1b"]:
            for loader in [False, True]:
                torch.manual_seed(1)
                weights = None if strategy == "1f1b-flush" else "stash"
                model = nn.Sequential(
                    nn.Linear(6, 8), nn.Tanh(), nn.Linear(8, 8), nn.Tanh(), nn.Linear(8, 3)
                )
                trainer = quick(model, x[:4], strategy=strategy, weights=weights)
                if loader:
                    batches = DataLoader(TensorDataset(x, y), batch_size=24)
                    history = trainer.fit(batches, epochs=2)
                else:
                    history = trainer.fit(x, y, epochs=2, shuffle=False)
                self.assertEqual(trainer.steps, 8)
                results.append([epoch["loss"] for epoch in history])
        self.assertEqual(results[0], results[1])
        self.assertEqual(results[2], results[3])

    def test_the_command_trains_the_same(self):
        x, y = samples()
        with tempfile.TemporaryDirectory() as name:
            folder = Path(name)
            path = penstock.export(Net(dropout=0.2), x[:4], folder / "net.pt2")
            trainer = penstock.Trainer(
                path, strategy="1f1b-flush", workers=2, batch_size=24, micro_batches=3, lr=0.1,
                momentum=0.9, clip_norm=1.0, progress=False,
            )
            seen = []
            trainer.fit(x, y, epochs=2, callbacks=[seen.append])
            (folder / "plan.json").write_text(json.dumps(trainer.plan))
            np.savez(folder / "data.npz", x=x.numpy(), y=y.numpy())
            done = subprocess.run(
                [sys.executable, "-c", "from penstock._tool import main; main()", "train"]
                + ["--model", path, "--data", folder / "data.npz", "--test-share", "0"]
                + ["--plan", folder / "plan.json", "--batch-size", "24", "--epochs", "2"]
                + ["--lr", "0.1", "--momentum", "0.9", "--clip-norm", "1"]
                + ["--checkpoint", folder / "saved", "--json"],
                capture_output=True, text=True, check=True,
            )
            losses = json.loads(done.stdout)["losses"]
            self.assertEqual(losses, [step["loss"] for step in seen])
            (saved,) = folder.glob("saved/step-000000008/weights.pt")
            for key, value in torch.load(saved).items():
                self.assertTrue(torch.equal(value, trainer.state_dict()[key]), key)

    def test_losses_fall_with_every_strategy(self):
        x, y = samples(192)
        for strategy in ["auto", "1f1b", "dp", "interleaved"]:
            with self.subTest(strategy=strategy):
                model = nn.Sequential(*[layer for _ in range(4) for layer in
                                        (nn.Linear(6, 6), nn.Tanh())], nn.Linear(6, 3))
                trainer = quick(model, x[:4], strategy=strategy, momentum=0.5)
                history = trainer.fit(x, y, epochs=10)
                self.assertLess(history[-1]["loss"], 0.9 * history[0]["loss"])
                found = trainer.evaluate(x, y)
                self.assertGreater(found["accuracy"], history[0]["accuracy"])

    def test_evaluation_is_that_of_pytorch(self):
        x, y = samples()
        model = Net(dropout=0.5)
        trainer = quick(model, x[:4], strategy="1f1b-flush")
        trainer.fit(x, y, epochs=3)
        model.load_state_dict(trainer.state_dict(), strict=True)
        model.eval()
        with torch.no_grad():
            logits = model(x)
        found = trainer.evaluate(DataLoader(TensorDataset(x, y), batch_size=40))
        self.assertAlmostEqual(found["loss"], nn.functional.cross_entropy(logits, y).item(), 4)
        self.assertAlmostEqual(found["accuracy"], (logits.argmax(1) == y).float().mean().item(), 5)

    def test_numpy_arrays_and_other_losses(self):
        x, _ = samples()
        target = (x @ torch.randn(6, 3)).numpy()
        model = nn.Sequential(nn.Linear(6, 16), nn.Tanh(), nn.Linear(16, 3))
        trainer = quick(model, x[:4], loss=nn.MSELoss(), lr=0.05, momentum=0.9)
        history = trainer.fit(x.numpy(), target, epochs=20)
        self.assertLess(history[-1]["loss"], 0.3 * history[0]["loss"])
        self.assertIsNone(history[-1]["accuracy"])
        binary = quick(model, x[:4], loss="binary-cross-entropy")
        self.assertLess(binary.fit(x, (x[:, :3] > 0).float())[0]["loss"], 2)

    def test_several_inputs_by_name(self):
        ids = torch.randint(0, 10, (48, 5))
        batch = {"scale": torch.ones(48, 5), "ids": ids, "labels": (ids + 1) % 10}
        trainer = quick(TwoInputs(), {"ids": ids[:4], "scale": torch.ones(4, 5)}, lr=1.0)
        self.assertEqual(trainer.fit(batch, epochs=1)[0]["samples"], 48)
        history = trainer.fit([batch] * 20, epochs=2)
        self.assertLess(history[1]["loss"], history[0]["loss"])
        with self.assertRaisesRegex(penstock.PenstockError, "no 'scale'"):
            trainer.step({"ids": ids, "labels": ids})
        # The mean is over the targets that are not ignored.
        labels = batch["labels"].clone()
        labels[:, 1:] = -100
        self.assertEqual(trainer.step({**batch, "labels": labels})["samples"], 48)

    def test_weights_go_in_and_out(self):
        x, y = samples()
        first = quick(Net(), x[:4], strategy="1f1b-flush")
        first.fit(x, y, epochs=2)
        torch.manual_seed(5)
        second = quick(Net(), x[:4], strategy="gpipe")
        second.load_state_dict(first.state_dict())
        self.assertEqual(second.evaluate(x, y), first.evaluate(x, y))
        with self.assertRaisesRegex(penstock.PenstockError, "no 'first.weight'"):
            second.load_state_dict({})

    def test_callbacks_see_every_step_and_may_end_the_run(self):
        x, y = samples()
        seen = []
        trainer = quick(Net(), x[:4], strategy="1f1b-flush")
        trainer.fit(x, y, epochs=2, callbacks=[seen.append])
        self.assertEqual([one["step"] for one in seen], list(range(1, 9)))
        self.assertEqual([one["epoch"] for one in seen], [0] * 4 + [1] * 4)

        def enough(step):
            raise StopIteration("enough")

        with self.assertRaisesRegex(Exception, "enough"):
            trainer.fit(x, y, callbacks=[enough])
        self.assertGreater(len(trainer.fit(x, y)), 0)

    def test_other_threads_run_meanwhile(self):
        x, y = samples(960)
        counted = 0
        ended = threading.Event()

        def count():
            nonlocal counted
            while not ended.wait(0.001):
                counted += 1

        thread = threading.Thread(target=count)
        thread.start()
        quick(Net(), x[:4]).fit(x, y, epochs=20)
        ended.set()
        thread.join()
        self.assertGreater(counted, 5)

    def test_plans_and_layers_can_be_seen(self):
        x, _ = samples()
        trainer = quick(Net(), x[:4], strategy="1f1b-flush")
        self.assertEqual(trainer.plan["strategy"], "1f1b-flush")
        stages = [name for stage in trainer.plan["stages"] for name in stage["layers"]]
        self.assertEqual(sorted(stages), sorted(trainer.layers))
        again = penstock.Trainer(Net(), x[:4], plan=trainer.plan, progress=False)
        self.assertEqual(again.plan["stages"], trainer.plan["stages"])

    def test_what_does_not_fit_is_said(self):
        x, y = samples()
        with self.assertRaisesRegex(ValueError, "example"):
            penstock.Trainer(Net())
        with self.assertRaisesRegex(ValueError, "'SGD' or 'Adam'"):
            quick(Net(), x[:4], optimizer="LBFGS")
        with self.assertRaisesRegex(ValueError, "CrossEntropyLoss"):
            quick(Net(), x[:4], loss=nn.HingeEmbeddingLoss())
        with self.assertRaisesRegex(penstock.PenstockError, "workers"):
            quick(Net(), x[:4], workers=0)
        with self.assertRaisesRegex(penstock.PenstockError, "there is no file"):
            penstock.Trainer("nowhere.pt2")
        trainer = quick(Net(), x[:4], strategy="1f1b-flush")
        with self.assertRaisesRegex(penstock.PenstockError, "expected samples of float32, 6"):
            trainer.step(torch.zeros(4, 7), torch.zeros(4, dtype=torch.long))
        with self.assertRaisesRegex(penstock.PenstockError, "holds 3"):
            trainer.fit(x, y + 1)
        with self.assertRaisesRegex(penstock.PenstockError, "holds nan"):
            trainer.fit(x * float("nan"), y)
        with self.assertRaisesRegex(penstock.PenstockError, "targets"):
            trainer.step([x])
        model = nn.Sequential(nn.Linear(6, 8), nn.Tanh(), nn.Linear(8, 3))
        delayed = quick(model, x[:4], strategy="1f1b", weights="stash")
        with self.assertRaisesRegex(penstock.PenstockError, "delays weights"):
            delayed.step(x, y)

    def test_dropout_between_the_layers_of_recurrent_networks(self):
        class Recurrent(nn.Module):
            def __init__(self, kind, dropout, both):
                super().__init__()
                torch.manual_seed(4)
                self.rnn = kind(6, 8, num_layers=3, dropout=dropout, bidirectional=both)
                self.head = nn.Linear(8 * (1 + both), 3)

            def forward(self, x):
                return self.head(self.rnn(x.transpose(0, 1))[0][-1])

        x = torch.randn(32, 5, 6, generator=torch.Generator().manual_seed(7))
        y = x[:, -1, :3].argmax(1)

        def losses(kind, dropout, both, strategy, workers):
            trainer = quick(Recurrent(kind, dropout, both), x[:4], strategy=strategy,
                            workers=workers, micro_batches=2, lr=0.1)  # fmt: skip
            trained = [trainer.step(x, y)["loss"] for _ in range(3)]
            return trained, trainer.evaluate(x, y)["loss"]

        for kind, both in ((nn.LSTM, True), (nn.GRU, False), (nn.RNN, False)):
            with self.subTest(kind=kind, both=both):
                plain = losses(kind, 0.0, both, "serial", 1)
                # Layer by layer it is the same network, unless numbers are dropped.
                self.assertEqual(losses(kind, 1e-12, both, "serial", 1), plain)
                dropped = losses(kind, 0.4, both, "serial", 1)
                self.assertNotEqual(dropped, plain)
                self.assertEqual(losses(kind, 0.4, both, "gpipe", 2), dropped)

    def test_a_module_stays_as_it_was(self):
        x, _ = samples()
        model = Net().eval()
        before = {name: value.clone() for name, value in model.state_dict().items()}
        trainer = quick(model, x[:4], strategy="serial", workers=1)
        trainer.step(x, torch.zeros(96, dtype=torch.long))
        self.assertFalse(model.training)
        for name, value in model.state_dict().items():
            self.assertTrue(torch.equal(value, before[name]))


if __name__ == "__main__":
    unittest.main()
