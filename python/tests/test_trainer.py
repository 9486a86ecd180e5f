"""The Trainer: the same numbers as PyTorch, whatever the cut."""

import contextlib
import copy
import gc
import importlib.util
import io
import json
import os
import signal
import subprocess
import sys
import tempfile
import threading
import unittest
import warnings
import weakref
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

    def test_buffers_that_are_not_persistent_are_the_trainers_own(self):
        class Counting(nn.Module):
            def __init__(self):
                super().__init__()
                self.body = nn.Linear(6, 3)
                self.register_buffer("calls", torch.tensor(0), persistent=False)

            def forward(self, x):
                self.calls.add_(1)
                return self.body(x) * (1 + 0.01 * self.calls)

        module = Counting()
        with self.assertWarnsRegex(UserWarning, "its buffer 'calls' of int64"):
            trainer = quick(module, torch.randn(4, 6), strategy="serial", workers=1)
        weights = trainer.state_dict()
        self.assertEqual(list(weights), list(module.state_dict()))
        module.load_state_dict(weights, strict=True)
        first = trainer.step(torch.ones(24, 6), torch.zeros(24, dtype=torch.int64))["loss"]
        trainer.load_state_dict(weights)
        again = trainer.step(torch.ones(24, 6), torch.zeros(24, dtype=torch.int64))["loss"]
        self.assertNotEqual(first, again)  # it has gone on counting

    def test_numbers_that_do_not_fit_are_named(self):
        module = nn.Linear(6, 3)
        for keyword, expected in (("workers", "expected 1 to 1024"),
                                  ("threads", "expected a whole number that 32 bits hold"),
                                  ("micro_batches", "expected 1 to the batch_size 64")):
            expected = f"{keyword}: {expected}, found 1000000000000$"
            with self.assertRaisesRegex(penstock.PenstockError, expected):
                penstock.Trainer(module, torch.randn(4, 6), **{keyword: 10**12})

    def test_targets_that_are_all_ignored_are_refused(self):
        trainer = quick(nn.Linear(6, 3), torch.randn(4, 6), strategy="serial", workers=1)
        ignored = torch.full((48,), -100)
        with self.assertRaisesRegex(penstock.PenstockError, "nothing can be learned from"):
            trainer.fit(torch.randn(48, 6), ignored)
        ignored[47] = 2
        trainer.fit(torch.randn(48, 6), ignored)

    def test_a_forked_process_leaves_the_files_alone(self):
        module = nn.Sequential(nn.Linear(6, 6), nn.Linear(6, 3))
        module[0].weight.requires_grad_(False)
        trainer = quick(module, torch.randn(4, 6), strategy="serial", workers=1)
        process = os.fork()
        if process == 0:
            try:
                weakref.finalize._exitfunc()  # as at the end of a process
            finally:
                os._exit(0)
        os.waitpid(process, 0)
        self.assertEqual(list(trainer.state_dict()), list(module.state_dict()))
        folder = trainer._folder.name
        self.assertTrue(os.path.isdir(folder))
        del trainer
        gc.collect()
        self.assertFalse(os.path.exists(folder))

    def test_what_a_killed_process_has_left_goes(self):
        module = nn.Sequential(nn.Linear(6, 6), nn.Linear(6, 3))
        ends, told = os.pipe()
        process = os.fork()
        if process == 0:
            folder = penstock._trainer._Folder()
            os.write(told, folder.name.encode())
            os.kill(os.getpid(), signal.SIGKILL)
        os.waitpid(process, 0)
        left = os.read(ends, 1000).decode()
        self.assertTrue(os.path.isdir(left))
        alive = quick(module, torch.randn(4, 6), strategy="serial", workers=1)
        for folder in (left, alive._folder.name):
            os.utime(folder, (0, 0))
        quick(module, torch.randn(4, 6), strategy="serial", workers=1)
        self.assertFalse(os.path.exists(left))
        self.assertTrue(os.path.isdir(alive._folder.name))

    def test_small_micro_batches_of_batch_norm_are_warned_of(self):
        module = nn.Sequential(nn.Linear(6, 6), nn.BatchNorm1d(6), nn.Linear(6, 3))
        with self.assertWarnsRegex(UserWarning, "batch norm sees micro-batches of 3 samples"):
            quick(module, torch.randn(4, 6), strategy="1f1b-flush", micro_batches=8)
        with warnings.catch_warnings():
            warnings.simplefilter("error")
            quick(module, torch.randn(4, 6), strategy="1f1b-flush", micro_batches=3)

    def test_steps_are_those_of_pytorch(self):
        x, y = samples()
        batches = [(x[i : i + 24], y[i : i + 24]) for i in range(0, 96, 24)]
        model = Net()
        for strategy in ["serial", "1f1b-flush", "dp"]:
            with self.subTest(strategy=strategy):
                own = Net()
                own.load_state_dict(model.state_dict())
                sgd = {"lr": 0.1, "momentum": 0.9, "weight_decay": 0.01,
                       "nesterov": strategy == "1f1b-flush"}
                # Batch norm takes the statistics of a micro-batch: one for each step.
                trainer = quick(
                    own, x[:4], strategy=strategy, workers=1 if strategy == "serial" else 2,
                    micro_batches=1 if strategy != "dp" else None, **sgd,
                )
                losses = [trainer.step(*batch)["loss"] for batch in batches]
                if strategy == "dp":
                    self.assertLess(losses[-1], losses[0])
                    continue
                expected = trained_by_torch(own, batches, nn.CrossEntropyLoss(), **sgd)
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

    @unittest.skipIf(torch.cuda.is_available(), "there is a GPU")
    def test_a_gpu_that_is_not_there_is_refused(self):
        net, (x, _) = torch.nn.Linear(4, 2), (torch.randn(8, 4), None)
        for device in ("cuda", torch.device("cuda:0"), "cuda:0,cpu"):
            with self.assertRaisesRegex(penstock.PenstockError, "^device: cuda"):
                penstock.Trainer(net, x, device=device)
        with self.assertRaisesRegex(penstock.PenstockError, "device: .*tpu"):
            penstock.Trainer(net, x, device="tpu")
        with self.assertRaisesRegex(ValueError, "device: expected a name, found 3"):
            penstock.Trainer(net, x, device=3)
        with self.assertRaisesRegex(penstock.PenstockError, "cuda_graphs: .* on the CPU"):
            penstock.Trainer(net, x, device=torch.device("cpu"), cuda_graphs=True)

    def test_bfloat16_computes_as_autocast_does(self):
        flags = Path("/proc/cpuinfo").read_text().split()
        if not {"avx512_bf16", "amx_bf16"} & set(flags):
            self.skipTest("this processor does not multiply bfloat16")
        torch.manual_seed(6)
        x = torch.randn(32, 24)
        y = torch.randint(0, 3, (32,))
        net = nn.Sequential(nn.Linear(24, 256), nn.LayerNorm(256), nn.GELU(), nn.Linear(256, 256),
                            nn.GELU(), nn.Linear(256, 3))  # fmt: skip

        def peer_losses(dtype):
            peer = copy.deepcopy(net)
            optimizer = torch.optim.SGD(peer.parameters(), lr=0.05)
            losses = []
            for _ in range(6):
                optimizer.zero_grad()
                parts = []
                for part, targets in zip(x.split(16), y.split(16)):
                    with torch.autocast("cpu", torch.bfloat16, enabled=dtype == torch.bfloat16):
                        logits = peer(part)
                    parts.append(nn.functional.cross_entropy(logits.float(), targets) / 2)
                    parts[-1].backward()
                optimizer.step()
                losses.append(sum(part.item() for part in parts))
            return np.array(losses)

        found = []
        for workers in (1, 2):
            trainer = penstock.Trainer(
                copy.deepcopy(net), (x[:16],), strategy="1f1b-flush", workers=workers, lr=0.05,
                momentum=0, batch_size=32, micro_batches=2, precision="bfloat16",
            )  # fmt: skip
            found.append(np.array([trainer.step(x, y)["loss"] for _ in range(6)]))
        self.assertEqual(list(found[0]), list(found[1]))
        apart = np.abs(found[0] - peer_losses(torch.bfloat16)).sum()
        self.assertLess(apart, 0.01)
        self.assertLess(apart, 0.5 * np.abs(found[0] - peer_losses(torch.float32)).sum())

    def test_stages_compute_in_the_precision_asked_for(self):
        torch.manual_seed(5)
        net = nn.Sequential(nn.Linear(6, 32), nn.Tanh(), nn.Linear(32, 32), nn.Tanh(),
                            nn.Linear(32, 3))  # fmt: skip
        x, y = samples()
        final = {}
        for precision in ("float32", "bfloat16", "float16"):
            trainer = penstock.Trainer(
                net, (x[:16],), strategy="1f1b-flush", workers=2, lr=0.1, batch_size=16,
                precision=precision,
            )  # fmt: skip
            losses = [trainer.step(x[:16], y[:16])["loss"] for _ in range(30)]
            self.assertLess(losses[-1], 0.8 * losses[0], precision)
            self.assertEqual(trainer.plan["precision"], precision)
            weights = trainer.state_dict()
            self.assertTrue(all(w.dtype == torch.float32 for w in weights.values()))
            final[precision] = losses[-1]
        self.assertNotEqual(final["float32"], final["bfloat16"])
        self.assertAlmostEqual(final["float32"], final["bfloat16"], delta=0.05)
        self.assertAlmostEqual(final["float32"], final["float16"], delta=0.05)
        with self.assertRaisesRegex(penstock.PenstockError, "float8"):
            penstock.Trainer(net, (x[:16],), precision="float8")

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
        with self.assertRaisesRegex(penstock.PenstockError, "no 'first.bias'"):
            second.load_state_dict({})

    def test_inputs_are_no_targets(self):
        class Pair(nn.Module):
            def __init__(self):
                super().__init__()
                self.head = nn.Linear(6, 3)

            def forward(self, source, target):
                return self.head(source + target)

        x, y = samples()
        model = Pair()
        data = {"source": x[:24], "target": x[24:48]}
        trainer = quick(model, data, strategy="serial", workers=1, micro_batches=1)
        expected = nn.functional.cross_entropy(model(**data), y[:24]).item()
        self.assertAlmostEqual(trainer.evaluate({**data, "labels": y[:24]})["loss"], expected, 5)
        for more, message in (
            ({"labels": y[:24], "y": y[:24]}, "both 'labels' and 'y'"),
            ({"labels": y[:24], "mask": y[:24]}, "the batch has 'mask'; the model and its loss"),
            ({}, "targets"),
        ):
            with self.assertRaisesRegex(penstock.PenstockError, message):
                trainer.step({**data, **more})

    def test_modules_inside_of_others(self):
        x, y = samples()
        for wrap in (torch.compile, nn.DataParallel):
            model = Net()
            trainer = quick(wrap(model), x[:4], strategy="serial", workers=1)
            model.load_state_dict(trainer.state_dict(), strict=True)

    def test_a_profile_that_is_kept_makes_the_same_plan(self):
        x, _ = samples(32)
        model = Net().eval()

        def predicted(cache):
            trainer = penstock.Trainer(model, x, workers=2, batch_size=32, profile_cache=cache)
            return trainer.plan["throughput_samples_per_s"]

        with tempfile.TemporaryDirectory() as folder:
            first = predicted(folder)
            if not list(Path(folder).glob("*.json")):
                self.skipTest("other programs use the cores: nothing is kept")
            self.assertEqual(predicted(Path(folder)), first)
            self.assertNotEqual(predicted(False), first)
        for wrong in (3, 1.5, ["folder"]):
            with self.assertRaisesRegex(TypeError, "profile_cache: expected a folder"):
                predicted(wrong)

    def test_fewer_workers_than_asked_for_are_said(self):
        x, _ = samples()
        with self.assertWarnsRegex(UserWarning, "the plan uses 1 of 2 workers"):
            quick(nn.Linear(6, 3), x[:4], strategy="gpipe")

    def test_counters_stay_whole_numbers(self):
        x, y = samples()
        model = Net()
        trainer = quick(model, x[:4], strategy="1f1b-flush", micro_batches=2)
        trainer.fit(x, y)
        state = trainer.state_dict()
        self.assertEqual({name: value.dtype for name, value in state.items()},
                         {name: value.dtype for name, value in model.state_dict().items()})
        self.assertEqual(state["norm.num_batches_tracked"], 8)
        trainer.load_state_dict(state)

    def test_weights_that_are_no_numbers_are_refused(self):
        x, _ = samples()
        model = Net()
        with torch.no_grad():
            model.first.weight[3, 4] = float("nan")
        with self.assertRaisesRegex(penstock.PenstockError,
                                    "the stored 'first.weight' has numbers that are not finite"):
            quick(model, x[:4], strategy="1f1b-flush")

    def test_batches_outside_of_what_was_exported_are_refused(self):
        x, y = samples()
        batch = torch.export.Dim("batch", min=6, max=16)
        with tempfile.TemporaryDirectory() as folder:
            path = Path(folder) / "net.pt2"
            torch.export.save(torch.export.export(Net().train(), (x[:8],),
                                                  dynamic_shapes=({0: batch},)), path)
            for parts, found in ((12, 2), (1, 24)):
                with self.assertRaisesRegex(
                        penstock.PenstockError,
                        f"micro-batch of {found} samples: the program was exported for 6 to"):
                    quick(path, None, strategy="1f1b-flush", micro_batches=parts)
            trainer = quick(path, None, strategy="1f1b-flush", micro_batches=3)
            self.assertGreater(trainer.step(x[:24], y[:24])["loss"], 0)

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

    def test_a_callback_stops_fit_after_its_step(self):
        x, y = samples()
        trainer = quick(Net(), x[:4], strategy="1f1b-flush")

        def enough(step):
            if step["step"] % 4 == 2:
                trainer.stop()

        batches = DataLoader(TensorDataset(x, y), batch_size=24)
        for data in ((x, y), (batches,)):
            before = trainer.steps
            history = trainer.fit(*data, epochs=3, callbacks=[enough])
            self.assertEqual([one["samples"] for one in history], [48])
            self.assertEqual(trainer.steps, before + 2)
            trainer.fit(*data, epochs=1, callbacks=[])  # as long as ever
            self.assertEqual(trainer.steps, before + 6)
            trainer.fit(x[:48], y[:48])  # to a multiple of four
        self.assertEqual(trainer.epochs, 6)

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
        with self.assertRaisesRegex(ValueError, "'SGD', 'Adam', .* or 'SOAP'"):
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

    def test_adamw_is_that_of_pytorch(self):
        x, y = samples()
        model = Net()
        reference = Net()
        reference.load_state_dict(model.state_dict())
        optimizer = torch.optim.AdamW(reference.parameters(), lr=0.01, weight_decay=0.1)
        trainer = quick(model, x[:4], strategy="serial", workers=1, micro_batches=1,
                        optimizer="AdamW", lr=0.01, weight_decay=0.1)  # fmt: skip
        for _ in range(5):
            optimizer.zero_grad()
            nn.functional.cross_entropy(reference(x), y).backward()
            optimizer.step()
            trainer.step(x, y)
        for name, value in trainer.state_dict().items():
            other = reference.state_dict()[name].to(value.dtype)
            torch.testing.assert_close(value, other, rtol=1e-4, atol=1e-5)

    def test_means_are_over_the_targets_that_count(self):
        x, y = samples()
        y[:40] = -100
        model = Net().eval()
        expected = nn.functional.cross_entropy(model(x), y).item()
        right = (model(x)[40:].argmax(1) == y[40:]).float().mean().item()
        trainer = quick(model, x[:4], strategy="serial", workers=1)
        whole = trainer.evaluate(x, y)
        loader = DataLoader(TensorDataset(x, y), batch_size=8)
        for result in (whole, trainer.evaluate(x, y, batch_size=16), trainer.evaluate(loader)):
            self.assertAlmostEqual(result["loss"], expected, places=5)
            self.assertAlmostEqual(result["accuracy"], right, places=6)
            self.assertEqual(result["targets"], 56)
        still = quick(model, x[:4], strategy="serial", workers=1, lr=0.0, micro_batches=1)
        history = still.fit(x, y, batch_size=96)
        self.assertEqual(history[0]["targets"], 56)

    def test_rates_end_where_they_should_and_are_seen(self):
        x, y = samples()
        trainer = quick(Net(), x[:4], strategy="serial", workers=1, lr=1.0, total_steps=4,
                        lr_schedule="linear")  # fmt: skip
        rates = []
        trainer.fit(x, y, batch_size=48, callbacks=[lambda step: rates.append(step["lr"])])
        self.assertEqual(rates, [1.0, 0.75])
        trainer.fit(x, y, batch_size=32)
        self.assertEqual(trainer.lr, 0.0)
        trainer.scale_lr(2)
        for factor in (-1, float("nan")):
            with self.assertRaisesRegex(ValueError, "at least 0"):
                trainer.scale_lr(factor)

    def test_state_dicts_that_do_not_fit_change_nothing(self):
        x, y = samples()
        model = Net()
        model.first.bias.requires_grad_(False)
        trainer = quick(model, x[:4], strategy="gpipe", workers=2)
        good = trainer.state_dict()
        trainer.step(x, y)
        now = trainer.state_dict()
        frozen = {**good, "first.bias": good["first.bias"] + 1}
        torn = {**good, "third.weight": good["third.weight"] + 1}
        unknown = {**good, "fourth.weight": torch.zeros(1)}
        missing = {name: value for name, value in good.items() if name != "head.bias"}
        broken = {**good, "head.bias": torch.full((3,), float("nan"))}
        for what, weights in (("first.bias", frozen), ("weight'", torn), ("fourth", unknown),
                              ("no 'head.bias'", missing), ("finite", broken)):  # fmt: skip
            with self.subTest(what), self.assertRaisesRegex(penstock.PenstockError, what):
                trainer.load_state_dict(weights)
            for name, value in trainer.state_dict().items():
                self.assertTrue(torch.equal(value, now[name]), name)
        trainer.load_state_dict(good)

    def test_what_is_frozen_is_in_no_checkpoint(self):
        x, y = samples()
        model = Net()
        model.first.requires_grad_(False)
        model.register_buffer("zeroth", model.first.weight.data)
        trainer = quick(model, x[:4], strategy="serial", workers=1)
        trainer.step(x, y)
        frozen = {"first.weight", "first.bias"}
        trained = trainer.state_dict(frozen=False)
        self.assertEqual(trainer.state_dict().keys() - trained, frozen)
        with tempfile.TemporaryDirectory() as folder:
            saved = torch.load(trainer.save(folder) / "weights.pt")
            self.assertEqual(saved.keys() & frozen, set())
            self.assertTrue(torch.equal(saved["zeroth"], model.first.weight))
            again = quick(model, x[:4], strategy="gpipe", workers=2)
            again.load_state_dict(saved)
            self.assertTrue(
                torch.equal(again.state_dict()["head.bias"], trained["head.bias"])
            )
            again.resume(folder)
            self.assertEqual(again.steps, 1)
            with torch.no_grad():
                model.first.weight += 1
            with self.assertRaisesRegex(penstock.PenstockError, "other frozen parameters"):
                quick(model, x[:4], strategy="serial", workers=1).resume(folder)

    def test_statistics_are_those_of_the_replicas_that_trained(self):
        x, y = samples()
        state = []
        for strategy, workers in (("serial", 1), ("dp", 2)):
            torch.manual_seed(3)
            trainer = quick(Net(), x[:4], strategy=strategy, workers=workers, micro_batches=1,
                            batch_size=32)  # fmt: skip
            trainer.fit([(x[:32], y[:32]), (x[32:64], y[32:64])])
            state.append((trainer.state_dict(), trainer.evaluate(x, y, batch_size=8)["loss"],
                          trainer.evaluate(x, y)["loss"]))  # fmt: skip
        for name, value in state[0][0].items():
            torch.testing.assert_close(value, state[1][0][name], msg=name)
        self.assertAlmostEqual(state[0][1], state[1][1], places=5)
        self.assertAlmostEqual(state[1][1], state[1][2], places=5)

    def test_small_integers_are_compared_as_numbers(self):
        torch.manual_seed(2)
        model = nn.Sequential(nn.Linear(6, 200))
        x = torch.randn(8, 6)
        y = torch.tensor([156, 156, 1, 2, 156, 3, 199, 156])
        losses = []
        for dtype in (torch.int64, torch.uint8, torch.int16, torch.float16):
            trainer = quick(model, x, strategy="serial", workers=1, batch_size=8)
            if dtype == torch.float16:
                with self.assertRaisesRegex(penstock.PenstockError, "whole numbers"):
                    trainer.step(x, y.to(dtype))
                continue
            losses.append(trainer.step(x, y.to(dtype))["loss"])
        self.assertEqual(len(set(losses)), 1, losses)
        expected = nn.functional.cross_entropy(model(x), y).item()
        self.assertAlmostEqual(losses[0], expected, places=5)
        trainer = quick(model, x, strategy="serial", workers=1, batch_size=8)
        for wrong in (x.to(torch.complex64), x.to_sparse(), x.to("meta")):
            with self.assertRaisesRegex(penstock.PenstockError, "whole or real numbers"):
                trainer.step(wrong, y)
        with self.assertRaisesRegex(penstock.PenstockError, "sample 0 .* holds .*e\\+"):
            trainer.step(x.double() * 1e300, y)

    def test_slips_are_said(self):
        x, y = samples()
        trainer = quick(Net(), x[:4], strategy="serial", workers=1)
        data = TensorDataset(x, y)
        for error, message, call in (
            (TypeError, "batches have them", lambda: trainer.fit(DataLoader(data), y)),
            (TypeError, "found None", lambda: trainer.fit(None)),
            (ValueError, "no batch in epoch 1", lambda: trainer.fit([])),
            (ValueError, "of its own", lambda: trainer.fit(DataLoader(data), batch_size=4)),
            (ValueError, "no batch", lambda: trainer.evaluate(iter(()))),
            (ValueError, "at least 0", lambda: trainer.fit(x, y, epochs=-1)),
            (TypeError, "workers: expected a whole", lambda: quick(Net(), x[:4], workers=2.0)),
            (ValueError, "seed: expected at least 0", lambda: quick(Net(), x[:4], seed=-1)),
            (ValueError, "given twice",
             lambda: quick(Net(), x[:4], loss=nn.CrossEntropyLoss(), label_smoothing=0.1)),
            (ValueError, "momentum is for SGD",
             lambda: quick(Net(), x[:4], optimizer="Adam", momentum=0.9)),
            (ValueError, "a plan says",
             lambda: quick(Net(), x[:4], plan=trainer.plan, strategy="dp")),
            (TypeError, "expected a module", lambda: penstock.export(Net, x[:4], "/tmp/n.pt2")),
            (ValueError, "nothing to train",
             lambda: quick(Net().requires_grad_(False), x[:4], workers=1)),
        ):  # fmt: skip
            with self.subTest(message=message), self.assertRaisesRegex(error, message):
                call()
        once = (batch for batch in [(x, y)])
        with self.assertRaisesRegex(ValueError, "no batch in epoch 2"):
            trainer.fit(once, epochs=2)

    def test_fit_and_evaluate_take_what_step_takes(self):
        x, y = samples()
        losses = []
        for data in ((x, y), ((x, y),), ([x, y],), ((x.numpy(), y.numpy()),)):
            torch.manual_seed(1)
            trainer = quick(Net(), x[:4], strategy="serial", workers=1)
            losses.append((trainer.fit(*data, batch_size=24)[0]["loss"],
                           trainer.evaluate(*data)["loss"]))  # fmt: skip
        self.assertEqual(len(set(losses)), 1, losses)
        ids, scale = torch.randint(0, 10, (8, 3)), torch.randn(8, 3)
        two = quick(TwoInputs(), (ids, scale), strategy="serial", workers=1, batch_size=8)
        stepped = two.step((ids, scale, ids))["loss"]
        self.assertLess(two.evaluate((ids, scale, ids))["loss"], stepped)
        self.assertEqual(two.evaluate((ids, scale), ids), two.evaluate((ids, scale, ids)))

    def test_a_loader_need_not_know_its_length(self):
        class Stream(torch.utils.data.IterableDataset):
            def __iter__(self):
                return iter(zip(*samples()))

        x, y = samples()
        loader = DataLoader(Stream(), batch_size=24)
        with self.assertRaises(TypeError):
            len(loader)
        trainer = quick(Net(), x[:4], strategy="serial", workers=1, progress=True)
        with contextlib.redirect_stderr(io.StringIO()) as bar:
            self.assertEqual(trainer.fit(loader)[0]["samples"], 96)
        self.assertRegex(bar.getvalue(), "step 4, loss")
        self.assertEqual(trainer.evaluate(loader)["samples"], 96)

    def test_batches_of_other_lengths_are_said_with_their_sizes(self):
        ids, scale = torch.randint(0, 10, (8, 3)), torch.ones(8, 3)
        batches = [((ids, scale), ids), ((ids[:, :2], scale[:, :2]), ids[:, :2])]
        trainer = quick(TwoInputs(), (ids, scale), strategy="serial", workers=1, batch_size=8)
        with self.assertRaisesRegex(penstock.PenstockError, "'ids'.* 3, found int64, 2; pad"):
            trainer.fit(batches)
        delayed = quick(TwoInputs(), (ids, scale), strategy="1f1b", weights="stash", batch_size=8)
        with self.assertRaisesRegex(penstock.PenstockError, "'ids'.* 3, found int64, 2; pad"):
            delayed.fit(batches)

    @unittest.skipUnless(importlib.util.find_spec("ml_dtypes"), "needs ml_dtypes")
    def test_short_floats_of_numpy_are_taken(self):
        import ml_dtypes

        x, y = samples()
        for dtype in (ml_dtypes.bfloat16, ml_dtypes.float8_e4m3fn, ml_dtypes.float8_e5m2):
            short = x.numpy().astype(dtype)
            losses = []
            for given in (short, torch.from_numpy(short.astype(np.float32))):
                torch.manual_seed(1)
                trainer = quick(Net(), given[:4], strategy="serial", workers=1)
                losses.append((trainer.step(given, y)["loss"], trainer.evaluate(given, y)["loss"]))
            self.assertEqual(*losses)

    def test_no_stage_of_a_straight_plan_has_replicas(self):
        model = nn.Sequential(nn.Linear(6, 64), nn.Tanh(), nn.Linear(64, 64), nn.Linear(64, 3))
        trainer = quick(model, samples()[0][:4], straight=True)
        self.assertEqual([one["replicas"] for one in trainer.plan["stages"]],
                         [1] * len(trainer.plan["stages"]))  # fmt: skip
        with self.assertRaisesRegex(penstock.PenstockError, "straight means one worker per stage"):
            quick(model, samples()[0][:4], straight=True, strategy="dp")
        with self.assertRaisesRegex(ValueError, "a plan says what .* straight"):
            quick(model, samples()[0][:4], straight=True, plan=trainer.plan)

    def test_gradient_groups_make_replicas_agree_with_one_worker(self):
        x, y = samples()
        model = nn.Sequential(nn.Linear(6, 64), nn.Tanh(), nn.Linear(64, 64), nn.Linear(64, 3))
        trained = []
        for strategy, workers in (("serial", 1), ("dp", 2), ("gpipe", 2)):
            trainer = quick(model, x[:4], strategy=strategy, workers=workers, micro_batches=4,
                            gradient_groups=2)  # fmt: skip
            for _ in range(3):
                trainer.step(x, y)
            trained.append(trainer.state_dict())
        for other in trained[1:]:
            for name, value in trained[0].items():
                self.assertTrue(torch.equal(value, other[name]), name)

    def test_parts_in_evaluation_mode_stay_so(self):
        x, y = samples()
        model = Net().train()
        model.norm.eval()
        trainer = quick(model, x[:4].numpy(), strategy="serial", workers=1, lr=0.1)
        self.assertTrue(model.training and model.drop.training)
        self.assertFalse(model.norm.training)
        trainer.fit(x, y)
        self.assertTrue(torch.equal(trainer.state_dict()["norm.running_mean"], torch.zeros(12)))

    def test_auto_is_exact_unless_delays_are_asked_for(self):
        x, y = samples()
        for _ in range(3):
            model = nn.Sequential(nn.Linear(6, 64), nn.Tanh(), nn.Linear(64, 64), nn.Linear(64, 3))
            trainer = quick(model, x[:4], workers=2)
            self.assertEqual(trainer.plan["weights"], "flush")
            trainer.step(x, y)

    def test_a_loss_of_nothing_is_explained(self):
        class OwnLoss(nn.Module):
            def __init__(self):
                super().__init__()
                self.net = Net()

            def forward(self, x, labels):
                scores = self.net(x)
                # No single weight is right for both, so each micro-batch has its own mean.
                return nn.functional.cross_entropy(scores, labels) + scores.square().mean()

        x, y = samples()
        y[:24] = -100
        trainer = quick(OwnLoss(), {"x": x[:4], "labels": y[-4:]}, strategy="gpipe", workers=2,
                        micro_batches=4)  # fmt: skip
        with self.assertRaisesRegex(penstock.PenstockError, "targets are all ignored"):
            trainer.fit({"x": x, "labels": y}, batch_size=96, shuffle=False)

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
