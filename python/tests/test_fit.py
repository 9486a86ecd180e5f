"""The habits of `Trainer.fit`: evaluations between steps, the best checkpoint, early stopping.

test_fit.py [-k NAME]
"""

import atexit
import csv
import functools
import itertools
import json
import os
import tempfile
import textwrap
import unittest
import warnings
from pathlib import Path
from unittest import mock

import torch
from torch import nn
from torch.utils.data import DataLoader, TensorDataset

import penstock
from penstock import PenstockError
from penstock._habits import Evaluations, Habits, Record

SAMPLES, BATCH = 40, 8  # five steps an epoch


def samples(count=SAMPLES, seed=2):
    generator = torch.Generator().manual_seed(seed)
    x = torch.randn(count, 6, generator=generator)
    return x, x[:, :3].argmax(1)


def net():
    torch.manual_seed(1)
    return nn.Sequential(nn.Linear(6, 8), nn.Dropout(0.2), nn.Tanh(), nn.Linear(8, 3))


@functools.cache
def exported():
    folder = tempfile.TemporaryDirectory()
    atexit.register(folder.cleanup)
    return penstock.export(net(), samples()[0][:4], Path(folder.name) / "net.pt2")


def trainer_of(**options):
    options = {"strategy": "1f1b-flush", "workers": 2, "micro_batches": 2, "batch_size": BATCH,
               "progress": False, "lr": 0.1, **options}  # fmt: skip
    return penstock.Trainer(exported(), **options)


def loader_of(count=SAMPLES, **options):
    return DataLoader(TensorDataset(*samples(count)), batch_size=BATCH, **options)


class Told(penstock.Callback):
    """Writes down what it is told."""

    def __init__(self):
        self.all = []

    def on_begin(self, trainer):
        self.all.append("begin")

    def on_step(self, trainer, step):
        self.all.append(step["step"])

    def on_epoch(self, trainer, epoch):
        self.all.append(f"epoch {epoch['epoch']}")

    def on_evaluate(self, trainer, evaluation):
        self.all.append(f"evaluate {evaluation['step']}")

    def on_save(self, trainer, saved):
        assert (saved["folder"] / "manifest.json").exists()
        self.all.append(f"save {saved['step']}")

    def on_end(self, trainer):
        self.all.append("end")


class Fit(unittest.TestCase):
    def setUp(self):
        torch.set_num_threads(1)
        folder = tempfile.TemporaryDirectory()
        self.addCleanup(folder.cleanup)
        self.folder = Path(folder.name)
        self.x, self.y = samples()
        self.held = samples(24, seed=5)

    def same(self, one, other):
        self.assertEqual((one.steps, one.epochs), (other.steps, other.epochs))
        theirs = other.state_dict()
        for name, weight in one.state_dict().items():
            self.assertTrue(torch.equal(weight, theirs[name]), name)

    def test_evaluations_and_checkpoints_change_nothing_of_what_is_learned(self):
        plain, seen = trainer_of(), []
        plain.fit(self.x, self.y, epochs=2, callbacks=seen.append)
        busy, found = trainer_of(), []
        history = busy.fit(
            self.x, self.y, epochs=2, callbacks=found.append, eval_dataset=self.held, eval_every=3,
            checkpoint=self.folder / "run", save_every=2, keep_best=True, keep_last=1,
        )  # fmt: skip
        self.assertEqual([one["loss"] for one in found], [one["loss"] for one in seen])
        self.same(plain, busy)
        self.assertEqual([one["step"] for one in busy.evaluations], [3, 6, 9, 10])
        alone = trainer_of()
        alone.fit(self.x, self.y, max_steps=3)
        self.assertEqual(busy.evaluations[0]["loss"], alone.evaluate(*self.held)["loss"])
        self.assertEqual(history[-1]["eval_loss"], busy.evaluate(*self.held)["loss"])
        self.assertNotIn("eval_loss", history[0])  # its last step had none

    def test_they_come_in_the_order_of_the_steps(self):
        for data in ((self.x, self.y), (loader_of(),)):
            with self.subTest(type(data[0]).__name__):
                told, trainer = Told(), trainer_of()
                trainer.fit(
                    *data, epochs=2, callbacks=told, eval_dataset=self.held, eval_every=4,
                    checkpoint=self.folder / f"{len(data)}", save_every=2,
                )  # fmt: skip
                self.assertEqual(told.all, [
                    "begin", 1, 2, "save 2", 3, 4, "save 4", "evaluate 4", 5, "save 5", "epoch 0",
                    6, "save 6", 7, 8, "save 8", "evaluate 8", 9, 10, "save 10", "epoch 1",
                    "evaluate 10", "end",
                ])  # fmt: skip

    def test_a_run_that_is_cut_anywhere_goes_on_with_the_same_bits(self):
        held = DataLoader(TensorDataset(*self.held), batch_size=8)  # draws a seed when it begins
        options = {"eval_dataset": held, "eval_every": 2, "save_every": 1, "keep_best": True}

        def fit(trainer, make, folder, **more):
            seen = []
            trainer.fit(*make(), checkpoint=self.folder / folder, callbacks=seen.append,
                        **options, **more)  # fmt: skip
            return [one["loss"] for one in seen]

        for name, make in (
            ("tensors", lambda: (self.x, self.y)),
            ("loader", lambda: (loader_of(),)),
            ("shuffled", lambda: (loader_of(shuffle=True),)),
            ("own generator", lambda: (
                loader_of(shuffle=True, generator=torch.Generator().manual_seed(3)),)),
        ):  # fmt: skip
            torch.manual_seed(7)
            whole = trainer_of()
            losses = fit(whole, make, f"{name} whole", max_steps=12)
            self.assertEqual((len(losses), whole.epochs), (12, 2))
            for stop in (3, 5, 11):
                with self.subTest(name, stop=stop):
                    torch.manual_seed(7)
                    first, second = trainer_of(), trainer_of()
                    begun = fit(first, make, f"{name} {stop}", max_steps=stop)
                    torch.manual_seed(99)
                    self.assertTrue(second.resume(self.folder / f"{name} {stop}"))
                    self.assertEqual((second.steps, second.epochs), (stop, stop // 5))
                    rest = fit(second, make, f"{name} {stop}", max_steps=12)
                    self.assertEqual(begun + rest, losses)
                    self.same(whole, second)
                    due = [one for one in second.evaluations if "due" not in one]
                    self.assertEqual(due, whole.evaluations)

    def test_the_next_fit_goes_on_where_max_steps_has_cut(self):
        for make in (lambda: (self.x, self.y), lambda: (loader,)):
            loader = loader_of()
            whole, parts, losses = trainer_of(), trainer_of(), ([], [])
            whole.fit(*make(), epochs=2, callbacks=lambda one: losses[0].append(one["loss"]))
            for stop in (3, 4, 10):
                parts.fit(*make(), max_steps=stop,
                          callbacks=lambda one: losses[1].append(one["loss"]))  # fmt: skip
            self.assertEqual(*losses)
            self.same(whole, parts)

    def test_the_command_goes_on_inside_of_an_epoch(self):
        import numpy as np
        from penstock._tool import _run

        np.savez(self.folder / "data.npz", x=self.x.numpy(), y=self.y.numpy())
        whole = trainer_of(strategy="serial", workers=1)
        whole.fit(self.x, self.y, epochs=2)
        first = trainer_of(strategy="serial", workers=1)
        first.fit(self.x, self.y, max_steps=7, checkpoint=self.folder / "run")
        plan = self.folder / "plan.json"
        plan.write_text(json.dumps(first.plan))
        _run("train", "--model", str(exported()), "--data", str(self.folder / "data.npz"),
             "--plan", str(plan), "--batch-size", str(BATCH), "--lr", "0.1", "--momentum", "0",
             "--epochs", "2", "--no-eval",
             "--checkpoint", str(self.folder / "run"), "--resume", "--test-data",
             str(self.folder / "data.npz"))  # fmt: skip
        found = torch.load(self.folder / "run" / "step-000000010" / "weights.pt", weights_only=True)
        for name, weight in whole.state_dict().items():
            self.assertTrue(torch.equal(weight, found[name]), name)

    def test_the_best_and_the_newest_stay(self):
        losses = iter([0.5, 0.3, 0.4, 0.45, 0.2, 0.6, 0.7])
        trainer = trainer_of()
        with mock.patch.object(
            trainer, "evaluate", side_effect=lambda _: {"loss": next(losses), "accuracy": None}
        ):
            def kept():
                names = sorted(path.name for path in (self.folder / "run").glob("step-*"))
                return [int(name.removeprefix("step-")) for name in names]

            seen = []

            class Look(penstock.Callback):
                def on_evaluate(self, trainer, evaluation):
                    seen.append((kept(), os.readlink(folder / "best")))

            folder = self.folder / "run"
            for epochs in (4, 3):
                trainer.fit(self.x, self.y, epochs=epochs, checkpoint=folder, keep_best=True,
                            keep_last=1, eval_dataset=self.held, callbacks=Look())  # fmt: skip
        best = [5, 10, 10, 10, 25, 25, 25]
        self.assertEqual([int(link.removeprefix("step-")) for _, link in seen], best)
        found = [steps for steps, _ in seen]
        self.assertEqual(found, [[5], [5, 10], [10, 15], [10, 20], [10, 25], [25, 30], [25, 35]])
        record = json.loads((folder / "evaluations.json").read_text())
        self.assertEqual((record["best_step"], record["metric"]), (25, "loss"))
        other = trainer_of()
        other.resume(folder / "best")
        self.assertEqual((other.steps, len(other.evaluations)), (25, 5))

    def test_the_best_stays_over_many_fits_and_saves(self):
        run, trainer = self.folder / "run", trainer_of(lr=0.3)
        losses = []
        for rate in (1.0, 1.0, 0.0, 300.0, 300.0):  # it becomes better, then worse
            trainer.scale_lr(rate)
            trainer.fit(self.x, self.y, eval_dataset=tuple(self.held), keep_best=True,
                        checkpoint=run)  # fmt: skip
            trainer.fit({"input": self.x}, self.y, max_steps=trainer.steps)
            losses.append(trainer.evaluations[-1]["loss"])
        self.assertEqual(len(trainer.evaluations), 5)
        best = 5 * (losses.index(min(losses)) + 1)
        self.assertLess(best, 20)
        self.assertEqual((run / "best").resolve().name, f"step-{best:09}")
        for how in (str(run), f"{run}/", os.path.relpath(run), f"{run}/../run"):
            other = trainer_of()
            other.resume(run)
            for _ in range(3):
                other.step(self.x[:8], self.y[:8])
                other.save(how)
            self.assertTrue((run / "best" / "manifest.json").exists(), how)

    def test_a_folder_of_another_training_is_refused(self):
        run, own = self.folder / "run", self.folder / "own"
        options = {"checkpoint": run, "eval_dataset": self.held, "keep_best": True}
        trainer_of().fit(self.x, self.y, epochs=2, **options)

        def files():
            return {str(one): one.read_bytes() for one in run.rglob("*") if one.is_file()}

        before = files()
        other = trainer_of()
        said = f"'{run}' holds a checkpoint that this trainer neither.*resume.*another folder"
        for attempt in (lambda: other.fit(self.x, self.y, **options), lambda: other.save(run)):
            with self.assertRaisesRegex(PenstockError, said):
                attempt()
        self.assertEqual((other.steps, files()), (0, before))
        for _ in range(2):
            other.fit(self.x, self.y, **{**options, "checkpoint": own})
        other.save(own)
        with self.assertRaisesRegex(PenstockError, said):
            other.save(run)
        for checkpoint in (run, run / "best"):  # both are of this folder
            resumed = trainer_of()
            resumed.resume(checkpoint)
            resumed.fit(self.x, self.y, **options)

    def test_a_best_that_cannot_be_named_is_said(self):
        (self.folder / "best").mkdir()
        with self.assertWarnsRegex(UserWarning, "best' cannot be set to the checkpoint of step 5"):
            trainer_of().fit(self.x, self.y, eval_dataset=self.held, keep_best=True,
                             checkpoint=self.folder)  # fmt: skip

    def test_steps_in_a_callback_are_those_of_its_step(self):
        stream = list(zip(self.x.split(BATCH), self.y.split(BATCH)))
        for strategy, micro_batches in (("1f1b-flush", 2), ("serial", 1), ("1f1b", 1)):
            for data in ((self.x, self.y), (loader_of(),), (stream,)):
                with self.subTest(strategy, data=type(data[0])):
                    trainer = trainer_of(strategy=strategy, micro_batches=micro_batches)
                    seen = []

                    def note(step):
                        seen.append((trainer.steps, step["step"]))
                        if trainer.steps == 7:
                            trainer.stop()

                    trainer.fit(*data, epochs=3, callbacks=note)
                    self.assertEqual(seen, [(k + 1, k + 1) for k in range(trainer.steps)])
                    # With delayed weights later steps have begun.
                    self.assertIn(trainer.steps, (7, 8) if strategy == "1f1b" else (7,))
                    trainer.fit(*data, max_steps=14)
                    self.assertEqual(trainer.steps, 14)

    def test_a_checkpoint_of_a_stop_knows_that_the_epoch_is_over(self):
        class Stops(penstock.Callback):
            def on_save(self, trainer, saved):
                trainer.stop()

        for data in ((self.x, self.y), (loader_of(),)):
            folder = self.folder / str(len(data))
            one, other = trainer_of(), trainer_of()
            one.fit(*data, checkpoint=folder, save_every=2, callbacks=Stops())
            self.assertTrue(other.resume(folder))
            self.same(one, other)
            self.assertEqual((one.steps, one.epochs), (2, 1))
            for trainer in (one, other):
                trainer.fit(*data)
            self.same(one, other)

    def test_a_best_evaluation_between_checkpoints_is_saved(self):
        trainer = trainer_of()
        trainer.fit(self.x, self.y, epochs=1, eval_dataset=self.held, eval_every=2, keep_best=True,
                    keep_last=1, checkpoint=self.folder / "run")  # fmt: skip
        losses = {one["step"]: one["loss"] for one in trainer.evaluations}
        best = min(losses, key=losses.get)
        self.assertEqual(os.readlink(self.folder / "run" / "best"), f"step-{best:09}")
        other = trainer_of()
        other.resume(self.folder / "run" / "best")
        self.assertEqual(other.evaluate(*self.held)["loss"], losses[best])

    def test_it_ends_when_evaluations_improve_no_more(self):
        values = [0.5, 0.4, 0.41, 0.42, 0.39, 0.39, 0.3999, float("nan"), 0.1]
        for patience, steps in ((2, 4), (3, 8), (9, 9)):
            trainer, losses = trainer_of(), iter(values)
            with mock.patch.object(
                trainer, "evaluate", side_effect=lambda _: {"loss": next(losses), "accuracy": None}
            ):
                trainer.fit(self.x, self.y, eval_dataset=self.held, eval_every=1, max_steps=9,
                            early_stopping=patience)  # fmt: skip
            self.assertEqual(trainer.steps, steps, patience)
        rising = Evaluations()
        for step, accuracy in enumerate((0.5, 0.6, 0.605, 0.4)):
            rising.add({"loss": 1.0, "accuracy": accuracy}, step, due=True)
        self.assertEqual(rising.without_improvement("accuracy", 0.0), 1)
        self.assertEqual(rising.without_improvement("accuracy", 0.01), 2)
        self.assertEqual(rising.best_step("accuracy"), 2)
        self.assertEqual(rising.best_step("loss"), 0)

    def test_a_stopped_run_that_is_resumed_stays_stopped(self):
        values = {5: 0.5, 10: 0.6, 15: 0.7}
        trainer, other = trainer_of(), trainer_of()
        for one in (trainer, other):
            one.evaluate = lambda _, one=one: {"loss": values[one.steps], "accuracy": None}
        options = {"eval_dataset": self.held, "early_stopping": 1, "epochs": 3,
                   "checkpoint": self.folder / "run"}  # fmt: skip
        self.assertEqual(len(trainer.fit(self.x, self.y, **options)), 2)
        other.resume(self.folder / "run")
        self.assertEqual(other.fit(self.x, self.y, **options), [])
        self.assertEqual(other.steps, 10)

    def test_an_evaluation_that_was_missed_is_made_up_for(self):
        trainer = trainer_of()
        with self.assertRaisesRegex(KeyError, "bad"):
            with mock.patch.object(trainer, "evaluate", side_effect=KeyError("bad")):
                trainer.fit(self.x, self.y, eval_dataset=self.held, checkpoint=self.folder)
        other = trainer_of()
        self.assertTrue(other.resume(self.folder))  # the epoch was saved before
        self.assertEqual(other.steps, 5)
        other.fit(self.x, self.y, eval_dataset=self.held, checkpoint=self.folder)
        self.assertEqual([one["step"] for one in other.evaluations], [5, 10])

    def test_schedules_follow_the_evaluations(self):
        by_hand = trainer_of(lr_schedule="ReduceLROnPlateau,patience=0,factor=0.5")
        by_fit = trainer_of(lr_schedule="ReduceLROnPlateau,patience=0,factor=0.5")
        for _ in range(4):
            by_hand.fit(self.x, self.y)
            by_hand.observe(by_hand.evaluate(*self.held)["loss"])
        by_fit.fit(self.x, self.y, epochs=2, eval_dataset=self.held, checkpoint=self.folder)
        resumed = trainer_of(lr_schedule="ReduceLROnPlateau,patience=0,factor=0.5")
        resumed.resume(self.folder)
        resumed.fit(self.x, self.y, epochs=2, eval_dataset=self.held, checkpoint=self.folder)
        self.assertEqual(resumed.lr, by_hand.lr)
        self.same(resumed, by_hand)

    def test_a_metric_that_is_never_there_is_said(self):
        model = nn.Sequential(nn.Linear(6, 3))
        trainer = penstock.Trainer(model, self.x[:4], loss="mean-squared-error", workers=1,
                                   strategy="serial", batch_size=8, progress=False)  # fmt: skip
        held = (self.x, self.x[:, :3])
        with self.assertRaisesRegex(PenstockError, "the evaluation has no accuracy.*expected"):
            trainer.fit(*held, epochs=4, eval_dataset=held, metric="accuracy", early_stopping=2)
        self.assertEqual(trainer.steps, 5)
        follows = trainer_of(lr_schedule="ReduceLROnPlateau,mode=min,patience=0")
        with self.assertRaisesRegex(ValueError, "mode='min', and a better accuracy is higher"):
            follows.fit(self.x, self.y, eval_dataset=self.held, metric="accuracy")
        follows.fit(self.x, self.y, eval_dataset=self.held)

    def test_accumulated_batches_make_one_step(self):
        wanted, seen = trainer_of(batch_size=24, micro_batches=6), []
        wanted.fit(DataLoader(TensorDataset(self.x, self.y), batch_size=24),
                   callbacks=seen.append)  # fmt: skip
        found, made = trainer_of(gradient_accumulation_steps=3, micro_batches=6), []
        found.fit(loader_of(), callbacks=made.append)
        self.assertEqual([one["loss"] for one in made], [one["loss"] for one in seen])
        self.assertEqual([one["samples"] for one in made], [24, 16])
        self.same(found, wanted)
        self.assertEqual(found.plan["micro_batches"], 6)
        default = trainer_of(gradient_accumulation_steps=3, micro_batches=None)
        self.assertEqual(default.plan["micro_batches"] % 3, 0)
        made.clear()
        default.fit(self.x, self.y, callbacks=made.append)
        self.assertEqual([one["samples"] for one in made], [24, 16])
        made.clear()
        default.fit(self.x, self.y, batch_size=4, callbacks=made.append)
        self.assertEqual([one["samples"] for one in made], [12, 12, 12, 4])
        with self.assertRaisesRegex(ValueError, "at least 1 batch, found 0"):
            trainer_of(gradient_accumulation_steps=0)

    def test_what_does_not_fit_is_said_before_anything_is_trained(self):
        trainer = trainer_of()
        endless = iter([])
        file = self.folder / "file"
        file.write_text("")
        for options, kind, said in (
            ({"early_stopping": 0}, ValueError, "patience: expected at least 1"),
            ({"early_stopping": 2, "eval_dataset": None}, ValueError, "early_stopping: .*eval_dat"),
            ({"eval_dataset": endless}, ValueError, "eval_dataset: .*may have no end"),
            ({"eval_dataset": []}, ValueError, "eval_dataset: list is empty"),
            ({"eval_every": 0}, ValueError, "eval_every: expected at least 1 step, found 0"),
            ({"eval_every": "steps"}, ValueError, "eval_every: expected 'epoch' or a number"),
            ({"keep_last": 0}, ValueError, "keep_last: expected at least 1 checkpoint, found 0"),
            ({"keep_best": True}, ValueError, "keep_best: expected a checkpoint"),
            ({"metric": "f1"}, ValueError, "metric: expected one of loss, accuracy, perplexity"),
            ({"max_steps": 0}, ValueError, "max_steps: expected at least 1 step, found 0"),
            ({"log_every": 0}, ValueError, "log_every: expected at least 1 step, found 0"),
            ({"save_every": 2}, ValueError, "save_every: expected a checkpoint"),
            ({"callbacks": [penstock.EarlyStopping(3)]}, TypeError, "as early_stopping=Early"),
            ({"callbacks": Told}, TypeError, "expected an object, found the class Told"),
            ({"loggers": [3]}, TypeError, "loggers: expected loggers or functions, found 3"),
            ({"checkpoint": file / "run"}, PenstockError, "cannot make the checkpoint folder"),
            ({"log_dir": file / "log"}, PenstockError, "cannot write .*file/log"),
            ({"loggers": penstock.loggers.CSV("/proc/x/log.csv")}, PenstockError, "CSV.*write"),
        ):
            with self.subTest(options):
                options = {"eval_dataset": self.held, **options}
                with self.assertRaisesRegex(kind, said):
                    trainer.fit(self.x, self.y, **options)
                self.assertEqual(trainer.steps, 0)
        trainer.fit(self.x, self.y)

    def test_other_data_do_not_go_on_inside_of_an_epoch(self):
        first, second = trainer_of(), trainer_of()
        first.fit(self.x, self.y, max_steps=3, checkpoint=self.folder)
        second.resume(self.folder)
        for data, said in (
            ((self.x[:32], self.y[:32]), "3 steps inside of an epoch of 40 samples in steps of 8, "
                                         "shuffled: expected the same, found 32 samples"),
            ((loader_of(),), "found a DataLoader|found a Resumable"),
        ):  # fmt: skip
            with self.assertRaisesRegex(PenstockError, said):
                second.fit(*data)
        second.fit(self.x, self.y)
        self.assertEqual((second.steps, second.epochs), (5, 1))
        first.fit(self.x[:32], self.y[:32])  # nobody said that it goes on
        self.assertEqual((first.steps, first.epochs), (7, 1))

    def test_a_callback_that_raises_loses_nothing(self):
        class Bad(penstock.Callback):
            def on_evaluate(self, trainer, evaluation):
                if evaluation["step"] == 10:
                    raise KeyError("mine")

        trainer = trainer_of()
        with self.assertRaisesRegex(KeyError, "mine"):
            trainer.fit(self.x, self.y, epochs=3, callbacks=Bad(), eval_dataset=self.held,
                        checkpoint=self.folder)  # fmt: skip
        other = trainer_of()
        other.resume(self.folder)
        self.assertEqual((other.steps, [one["step"] for one in other.evaluations]), (10, [5, 10]))

    def test_callbacks_may_look_at_everything_after_an_epoch(self):
        weights = []

        class Look(penstock.Callback):
            def on_epoch(self, trainer, epoch):
                weights.append(trainer.state_dict()["0.weight"])
                trainer.save(folder)
                if epoch["epoch"] == 1:
                    trainer.stop()

            def on_step(self, trainer, step):
                with case.assertRaisesRegex(RuntimeError, "already running"):
                    trainer.fit(*case.held)

        folder, case = self.folder / "own", self
        trainer = trainer_of()
        self.assertEqual(len(trainer.fit(self.x, self.y, epochs=4, callbacks=Look())), 2)
        self.assertFalse(torch.equal(*weights))
        self.assertTrue(torch.equal(weights[1], trainer.state_dict()["0.weight"]))

    def test_moments_are_those_of_a_serial_walk(self):
        for evaluate, save, most in itertools.product(("epoch", 1, 3), (0, 2, 7), (None, 11)):
            habits = Habits(
                checkpoint="run", eval_dataset=[1], eval_every=evaluate, save_every=save,
                keep_last=2, keep_best=False, early_stopping=None, metric="loss", max_steps=most,
                log_every=1,
            )  # fmt: skip
            step = 0
            while step < 11:
                left = habits.steps_left(step) or 11
                def is_one(at, habits=habits):
                    return habits.evaluates(at, False) or habits.saves(at, False)

                between = range(step + 1, min(step + left, 11))
                self.assertFalse(any(map(is_one, between)))
                step += left
                self.assertTrue(step >= 11 or is_one(step))


class Records(unittest.TestCase):
    def test_a_damaged_record_says_what_is_wrong(self):
        good = Evaluations()
        for step in (5, 10, 15):
            good.add({"loss": 1 / step, "accuracy": 0.5}, step, due=step != 10)
        text = good.text("loss")
        found = Evaluations()
        found.take(text, 15)
        self.assertEqual(found.all, good.all)
        found.take(text, 12)
        self.assertEqual(len(found.all), 2)
        self.assertEqual(json.loads(text)["best_step"], 15)
        with tempfile.TemporaryDirectory() as folder:
            file = Path(folder) / "evaluations.json"
            self.assertEqual(Record.of(folder), (file, "", ""))
            file.write_text(text)
            self.assertEqual(Record.of(folder), (file, text, ""))
            for bad, said in (
                *((text[:cut], "") for cut in range(len(text) - 2)),
                ("[]", "an object"), ("{}", "no 'format'"), ('{"format": "x"}', "found 'x'"),
                (text.replace("0.5", '"x"'), "accuracy: expected a number, found 'x'"),
                (text.replace('"step": 5', '"step": []'), "step: expected a number"),
                ('{"format": "penstock-evaluations", "evaluations": 7}', "a list of evaluations"),
            ):  # fmt: skip
                file.write_text(bad)
                self.assertTrue(Record.of(folder).damage)
                self.assertIn(said, Record.of(folder).damage)

    def test_a_damaged_record_is_kept(self):
        with tempfile.TemporaryDirectory() as name:
            folder = Path(name)
            x, y = samples()
            options = {"eval_dataset": (x, y), "checkpoint": folder, "keep_best": True}
            trainer_of().fit(x, y, **options)
            (folder / "evaluations.json").write_text("{")
            trainer = trainer_of()
            said = "evaluations.json' is damaged .*the next one counts.*'evaluations.json.damaged'"
            with self.assertWarnsRegex(UserWarning, said):
                trainer.resume(folder)
            self.assertEqual((folder / "evaluations.json").read_text(), "{")
            trainer.fit(x, y, **options)
            trainer.fit(x, y, **options)
            self.assertEqual((folder / "evaluations.json.damaged").read_text(), "{")
            with warnings.catch_warnings():
                warnings.simplefilter("error")
                again = trainer_of()
                again.resume(folder)
            self.assertEqual([one["step"] for one in again.evaluations], [5, 10, 15])


RANKS = """
    import penstock, torch, os
    from torch import nn
    rank = int(os.environ.get("RANK", "0"))
    from test_fit import samples, trainer_of, net, loader_of, BATCH
    from pathlib import Path
    x, y = samples()
    def trainer():
        return penstock.Trainer(net(), x[:4], strategy="1f1b-flush", workers=2, micro_batches=2,
                                batch_size=BATCH, progress=False, lr=0.1)
"""


class Ranks(unittest.TestCase):
    def run_all(self, program, ranks):
        import preloaded
        from test_ranks import forked_ranks

        program = textwrap.dedent(RANKS) + textwrap.dedent(program)
        all_done = forked_ranks(program, ranks) if ranks > 1 else preloaded.run(program)
        for done in all_done:
            self.assertEqual(done.returncode, 0, done.stdout + done.stderr)
        return [done.stdout for done in all_done]

    def test_all_ranks_evaluate_save_and_end_together(self):
        with tempfile.TemporaryDirectory() as folder:
            program = """
                class Weights(penstock.Callback):
                    every_rank = True
                    def on_evaluate(self, trainer, evaluation):
                        print(evaluation["step"], evaluation["loss"].hex(),
                              float(trainer.state_dict()["0.weight"].sum()).hex())
                for data in ((x, y), (loader_of(),)):
                    folder = Path({folder!r}) / str(len(data))
                    first, second = trainer(), trainer()
                    options = dict(eval_dataset=samples(24, seed=5), eval_every=2, keep_best=True,
                                   checkpoint=folder, save_every=3, callbacks=Weights())
                    first.fit(*data, max_steps=7, **options)
                    assert (first.steps, first.epochs) == (7, 1), (first.steps, first.epochs)
                    assert second.resume(folder)
                    assert (second.steps, second.epochs) == (7, 1)
                    second.fit(*data, epochs=5, early_stopping=penstock.EarlyStopping(2, 10.0),
                               **options)
                    print(second.steps, second.epochs, len(second.evaluations))
            """
            alone = self.run_all(program.format(folder=folder + "/alone"), 1)
            both = self.run_all(program.format(folder=folder + "/ranks"), 2)
            self.assertEqual(both, alone * 2)
            names = [sorted(one.name for one in Path(folder, part, "2").iterdir())
                     for part in ("alone", "ranks")]  # fmt: skip
            self.assertEqual(names[0], names[1])
            self.assertIn("best", names[0])

    def test_a_folder_of_another_training_is_refused_on_all(self):
        with tempfile.TemporaryDirectory() as folder:
            said = self.run_all(f"""
                first, second = trainer(), trainer()
                for _ in range(2):
                    first.fit(x, y, checkpoint={folder!r})
                first.save({folder!r})
                for attempt in (lambda: second.fit(x, y, checkpoint={folder!r}),
                                lambda: second.save({folder!r})):
                    try:
                        attempt()
                    except penstock.PenstockError as error:
                        print("neither saved nor resumed from" in str(error))
                assert second.resume({folder!r})
                second.fit(x, y, checkpoint={folder!r})
                print(second.epochs)
            """, 2)  # fmt: skip
        self.assertEqual(said, ["True\nTrue\n3\n"] * 2)

    def test_what_fails_on_a_later_rank_fails_on_all(self):
        with tempfile.TemporaryDirectory() as folder:
            said = self.run_all(f"""
                class Bad(penstock.Callback):
                    every_rank = True
                    def __init__(self, moment):
                        setattr(self, moment, self.fail)
                    def fail(self, trainer, *_):
                        if trainer.rank == 1:
                            raise KeyError("mine")
                t = trainer()
                for moment in ("on_step", "on_end"):
                    for data in ((x, y), (loader_of(),)):
                        try:
                            t.fit(*data, callbacks=Bad(moment))
                        except (KeyError, penstock.PenstockError) as error:
                            print(moment, error, flush=True)
                for base in ({folder!r} + "/none", 7):
                    try:
                        t.save_merged({folder!r} + "/merged", base=base)
                    except Exception as error:
                        print("merged", type(error).__name__, flush=True)
                print(t.fit(x, y)[0]["loss"].hex())
            """, 2)  # fmt: skip
        lines = [one.splitlines() for one in said]
        for first, second in zip(lines[0][:4], lines[1][:4]):
            moment = first.split()[0]
            self.assertEqual((first, second), (f"{moment} rank 1: KeyError: 'mine'",
                                               f"{moment} 'mine'"))  # fmt: skip
        kinds = ["PenstockError", "TypeError"], ["PenstockError", "PenstockError"]
        for found, wanted in zip(lines, kinds):
            self.assertEqual(found[4:6], [f"merged {kind}" for kind in wanted])
        self.assertEqual(lines[0][6:], lines[1][6:])

    def test_a_stop_between_steps_stops_all(self):
        program = """
            class Stops(penstock.Callback):
                def __init__(self, moment):
                    setattr(self, moment, lambda trainer, _: trainer.stop())
            for moment in ("on_evaluate", "on_save"):
                t = trainer()
                t.fit(x, y, epochs=3, eval_dataset=(x, y), eval_every=2, save_every=2,
                      checkpoint={folder!r} + moment, callbacks=Stops(moment))
                found = t.steps, t.epochs
                t.resume({folder!r} + moment)
                print(moment, *found, t.steps, t.epochs, flush=True)
        """
        with tempfile.TemporaryDirectory() as folder:
            alone = self.run_all(program.format(folder=folder + "/alone"), 1)
            both = self.run_all(program.format(folder=folder + "/both"), 2)
        self.assertEqual(both, alone * 2)
        self.assertEqual(alone[0], "on_evaluate 2 1 2 1\non_save 2 1 2 1\n")

    def test_what_fails_on_one_rank_fails_on_all(self):
        with tempfile.TemporaryDirectory() as folder:
            said = self.run_all(f"""
                class Bad(penstock.Callback):
                    def __init__(self, moment):
                        setattr(self, moment, self.fail)
                    def fail(self, *_):
                        raise KeyError("mine")
                t = trainer()
                for moment in ("on_begin", "on_evaluate", "on_save", "on_epoch"):
                    for data in ((x, y), (loader_of(),)):
                        try:
                            t.fit(*data, callbacks=Bad(moment), eval_dataset=(x, y),
                                  checkpoint={folder!r})
                        except (KeyError, penstock.PenstockError) as error:
                            print(moment, error)
                try:
                    t.fit(x, y, log_dir="/proc/no/such")
                except penstock.PenstockError as error:
                    print("log", "/proc/no/such" in str(error))
                t.fit(x, y)
                print(t.steps, t.evaluate(x, y)["loss"] > 0)
            """, 2)  # fmt: skip
            lines = [one.splitlines() for one in said]
            self.assertEqual(len(lines[0]), 10)
            for first, second in zip(lines[0][:8], lines[1][:8]):
                moment = first.split()[0]
                self.assertEqual(first, f"{moment} 'mine'")
                self.assertEqual(second, f"{moment} rank 0: KeyError: 'mine'")
            self.assertEqual(lines[0][8:], lines[1][8:])
            self.assertEqual(lines[0][8], "log True")


class Loggers(unittest.TestCase):
    def setUp(self):
        folder = tempfile.TemporaryDirectory()
        self.addCleanup(folder.cleanup)
        self.folder = Path(folder.name)
        self.x, self.y = samples()

    def rows(self, name="log.csv"):
        with open(self.folder / name, newline="") as file:
            return list(csv.DictReader(file))

    def test_numbers_are_those_of_the_steps(self):
        seen, told, trainer = [], [], trainer_of()
        trainer.fit(
            self.x, self.y, epochs=2, eval_dataset=samples(24, seed=5), eval_every=4,
            log_dir=self.folder, log_every=2, callbacks=seen.append,
            loggers=lambda numbers, step: told.append((step, numbers)),
        )  # fmt: skip
        steps = [2, 4, 4, 5, 6, 8, 8, 10, 10]
        self.assertEqual([step for step, _ in told], steps)
        self.assertEqual([int(row["step"]) for row in self.rows()], steps)
        self.assertAlmostEqual(told[0][1]["train/loss"], (seen[0]["loss"] + seen[1]["loss"]) / 2)
        self.assertEqual(told[2][1]["eval/loss"], trainer.evaluations[0]["loss"])
        lines = [json.loads(line) for line in (self.folder / "log.jsonl").read_text().splitlines()]
        for line, (step, numbers), row in zip(lines, told, self.rows(), strict=True):
            self.assertEqual(line.pop("step"), step)
            self.assertGreater(line.pop("time"), 1.7e9)
            self.assertEqual(line.keys(), numbers.keys())
            for name, value in numbers.items():
                if name != "train/samples_per_s":
                    self.assertEqual((line[name], float(row[name])), (value, value))

    def test_a_run_that_goes_on_continues_its_files(self):
        options = {"eval_dataset": samples(24, seed=5), "checkpoint": self.folder / "run",
                   "log_dir": self.folder}  # fmt: skip
        first, second = trainer_of(), trainer_of()
        first.fit(self.x, self.y, epochs=1, **options)
        first.fit(self.x, self.y, max_steps=8, **{**options, "checkpoint": None})  # is lost
        second.resume(self.folder / "run")
        second.fit(self.x, self.y, epochs=1, **options)
        steps = [1, 2, 3, 4, 5, 5, 6, 7, 8, 9, 10, 10]
        self.assertEqual([int(row["step"]) for row in self.rows()], steps)
        lines = (self.folder / "log.jsonl").read_text().splitlines()
        self.assertEqual([json.loads(line)["step"] for line in lines], steps)
        self.assertEqual(len(self.rows("log.1.csv")), 10)  # with what was lost
        self.assertEqual(len(list(self.folder.glob("events*"))), 3)

    def test_a_logger_that_fails_does_not_end_the_training(self):
        def bad(numbers, step):
            if step == 3:
                raise OSError("no room")

        trainer, good = trainer_of(), []
        with self.assertWarnsRegex(UserWarning, "bad fails at step 3.*goes on.*OSError: no room"):
            trainer.fit(self.x, self.y, loggers=[bad, lambda numbers, step: good.append(step)])
        self.assertEqual((trainer.steps, good), (5, [1, 2, 3, 4, 5]))

    def test_a_logger_that_fails_at_its_end_keeps_the_result(self):
        class Bad(penstock.loggers.CSV):
            def close(self):
                super().close()
                raise OSError("no room")

        for fails in (False, True):
            told, trainer = Told(), trainer_of()
            others = [told, lambda step: 1 // 0] if fails else [told]
            with self.assertWarnsRegex(UserWarning, "fails at its end: OSError: no room"):
                try:
                    history = trainer.fit(self.x, self.y, callbacks=others,
                                          loggers=Bad(self.folder / "log.csv"))  # fmt: skip
                    self.assertEqual(len(history), 1)
                except ZeroDivisionError:
                    self.assertTrue(fails)
            self.assertEqual(told.all[-1], "end")

    def test_a_moment_that_never_comes_is_refused(self):
        for name, nearest in (("on_epoch_end", "on_epoch"), ("on_train_end", "on_end")):
            with self.assertRaisesRegex(TypeError, f"Mine.{name}: .*did you mean {nearest}[?]"):
                type("Mine", (penstock.Callback,), {name: lambda *_: None})
        trainer_of().fit(self.x, self.y, callbacks=None, loggers=None)

    def test_tensorboard_reads_the_events(self):
        try:
            from tensorboard.backend.event_processing.event_accumulator import EventAccumulator
        except ImportError:
            self.skipTest("the package tensorboard is not there")
        told, board = [], penstock.loggers.TensorBoard(self.folder)

        class Say(penstock.Callback):
            def on_epoch(self, trainer, epoch):
                board.text("sample", "*once* upon a time", trainer.steps)

        trainer_of().fit(self.x, self.y, epochs=2, callbacks=Say(), log_every=2, loggers=[
            board, lambda numbers, step: told.append((step, numbers))])  # fmt: skip
        found = EventAccumulator(str(self.folder))
        found.Reload()
        for name in ("train/loss", "train/lr"):
            self.assertEqual(
                [(one.step, one.value) for one in found.Scalars(name)],
                [(step, torch.tensor(numbers[name]).item()) for step, numbers in told],
            )
        (text, _) = found.Tensors("sample")
        self.assertEqual(text.tensor_proto.string_val[0], b"*once* upon a time")
        self.assertEqual(found.SummaryMetadata("sample").plugin_data.plugin_name, "text")


if __name__ == "__main__":
    unittest.main()
