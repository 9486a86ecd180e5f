"""What a checkpoint has: a trainer that resumes goes on as the one that saved would have.

test_resume.py [-k NAME]
"""

import atexit
import functools
import os
import signal
import tempfile
import unittest
import unittest.mock
import warnings
from pathlib import Path

import torch
from torch import nn
from torch.optim import SGD, lr_scheduler
from torch.utils.data import DataLoader, Dataset, Subset, TensorDataset

import penstock

SAMPLES, BATCH = 40, 8


class Net(nn.Module):
    def __init__(self):
        super().__init__()
        torch.manual_seed(1)
        self.body = nn.Sequential(nn.Linear(6, 8), nn.Dropout(0.2), nn.Tanh(), nn.Linear(8, 3))

    def forward(self, x):
        return self.body(x)


def samples(count=SAMPLES):
    generator = torch.Generator().manual_seed(2)
    x = torch.randn(count, 6, generator=generator)
    return x, x[:, :3].argmax(1)


@functools.cache
def exported():
    """Net in a file: an export takes longer than what is tested."""
    folder = tempfile.TemporaryDirectory()
    atexit.register(folder.cleanup)
    return penstock.export(Net(), samples()[0][:4], Path(folder.name) / "net.pt2")


def trainer_of(module=None, **options):
    options = {"strategy": "1f1b-flush", "workers": 2, "micro_batches": 2, "batch_size": BATCH,
               "progress": False, "lr": 0.1, **options}  # fmt: skip
    if isinstance(options.get("optimizer"), torch.optim.Optimizer):
        del options["lr"]
    else:
        module = exported()
    return penstock.Trainer(module, samples()[0][:4], **options)


#: Options of every kind of schedule of learning rates.
SCHEDULES = {
    "constant": {},
    "warm-up": {"lr_warmup": 8},
    "linear": {"lr_schedule": "linear", "total_steps": 14},
    "cosine": {"lr_schedule": "cosine", "total_steps": 14, "lr_warmup": 3},
    "step": {"lr_schedule": "step", "lr_every": 3, "lr_factor": 0.5},
    "torch": {"lr_schedule": lambda o: lr_scheduler.ExponentialLR(o, 0.9)},
    "adam": {"optimizer": "adamw", "lr": 0.01},
    "muon": {"optimizer": "muon", "lr": 0.01, "lr_schedule": "ExponentialLR,gamma=0.9"},
    "adafactor": {"optimizer": "adafactor", "lr": 0.01},
    "soap": {"optimizer": "soap,basis_every=2", "lr": 0.01},
    "plateau": {"lr_schedule": "ReduceLROnPlateau,patience=0"},
    "adagrad": {"optimizer": "adagrad,initial_accumulator=0.5", "lr": 0.01},
}


class Broken(Exception):
    pass


def broken_after(batches, loader):
    for number, batch in enumerate(loader):
        if number == batches:
            raise Broken
        yield batch


def by_epochs(trainer, x, y):
    trainer.fit(x, y, epochs=1)


def by_stop(trainer, x, y):
    trainer.fit(x, y, callbacks=lambda step: trainer.stop() if step["step"] == 3 else None)


def by_steps(trainer, x, y):
    for begin in (0, BATCH, 2 * BATCH):
        trainer.step(x[begin : begin + BATCH], y[begin : begin + BATCH])


def raises(step):
    if step["step"] == 3:
        raise Broken


def by_exception_in_a_callback(trainer, x, y):
    trainer.fit(x, y, callbacks=raises)


def by_exception_in_a_callback_of_a_loader(trainer, x, y):
    trainer.fit(DataLoader(TensorDataset(x, y), batch_size=BATCH), callbacks=raises)


def by_error_in_a_loader(trainer, x, y):
    trainer.fit(broken_after(3, DataLoader(TensorDataset(x, y), batch_size=BATCH)))


def by_signal(trainer, x, y):
    def interrupt(step):
        if step["step"] == 3:
            os.kill(os.getpid(), signal.SIGINT)

    trainer.fit(x, y, epochs=50, callbacks=interrupt)


STOPS = [by_epochs, by_stop, by_steps, by_exception_in_a_callback,
         by_exception_in_a_callback_of_a_loader, by_error_in_a_loader, by_signal]  # fmt: skip


class Resume(unittest.TestCase):
    def setUp(self):
        torch.set_num_threads(1)
        folder = tempfile.TemporaryDirectory()
        self.addCleanup(folder.cleanup)
        self.folder = folder.name
        self.x, self.y = samples()

    def same(self, one, other):
        self.assertEqual(one.steps, other.steps)
        self.assertEqual(one.epochs, other.epochs)
        self.assertEqual(one.lr, other.lr)
        for name, value in one.state_dict().items():
            self.assertTrue(torch.equal(value, other.state_dict()[name]), name)

    def goes_on(self, one, other):
        """Both train on with the same bits, which needs the same state of the optimiser, too."""
        self.same(one, other)
        for trainer in (one, other):
            trainer.seen = []
            trainer.fit(self.x, self.y, callbacks=trainer.seen.append)
        self.assertEqual(one.seen, other.seen)
        self.same(one, other)

    def resumed(self, trainer, **options):
        folder = tempfile.mkdtemp(dir=self.folder)
        trainer.save(folder)
        other = trainer_of(**options)
        self.assertTrue(other.resume(folder))
        return other

    def test_any_stop_under_any_schedule(self):
        for number, (name, options) in enumerate(SCHEDULES.items()):
            for stop in STOPS[number % 2 :: 2] if number else STOPS:
                with self.subTest(name, stop=stop.__name__):
                    trainer = trainer_of(seed=5, **options)
                    try:
                        stop(trainer, self.x, self.y)
                    except (Broken, KeyboardInterrupt):
                        pass
                    self.assertGreaterEqual(trainer.steps, 3)
                    self.goes_on(trainer, self.resumed(trainer, **options))

    def test_the_factor_of_scale_lr_is_saved(self):
        for options in ({}, SCHEDULES["cosine"], SCHEDULES["torch"]):
            trainer = trainer_of(**options)
            trainer.fit(self.x, self.y)
            trainer.scale_lr(0.1)
            other = self.resumed(trainer, **options)
            self.goes_on(trainer, other)
            other.scale_lr(1.0)
            self.assertNotEqual(trainer.lr, other.lr)

    def test_the_rates_of_an_optimiser_of_torch_are_saved(self):
        def made():
            module = Net()
            weights, rest = list(module.parameters())[:1], list(module.parameters())[1:]
            groups = [{"params": weights, "lr": 0.3}, {"params": rest}]
            optimizer = SGD(groups, lr=0.1, momentum=0.9)
            return optimizer, trainer_of(module, optimizer=optimizer)

        optimizer, trainer = made()
        schedule = lr_scheduler.ExponentialLR(optimizer, 1 / 3)
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # the optimiser itself makes no step
            for _ in range(2):
                trainer.fit(self.x, self.y)
                schedule.step()
        trainer.save(self.folder)
        others, other = made()
        other.resume(self.folder)
        self.goes_on(trainer, other)
        for one, two in zip(optimizer.param_groups, others.param_groups):
            self.assertAlmostEqual(one["lr"], two["lr"], places=12)

    def test_an_error_within_fit_leaves_the_steps_that_were_made(self):
        class Inverse(nn.Module):
            def __init__(self):
                super().__init__()
                torch.manual_seed(1)
                self.head = nn.Linear(4, 3)

            def forward(self, x):
                return self.head(torch.linalg.inv(x.reshape(-1, 2, 2)).reshape(-1, 4))

        torch.manual_seed(3)
        x, y = torch.randn(40, 4), torch.randint(3, (40,))
        broken = x.clone()
        broken[35] = 0  # of the fifth step; it has no inverse

        def made():
            return penstock.Trainer(Inverse(), x[:4], strategy="serial", workers=1, batch_size=8,
                                    micro_batches=1, progress=False, lr=0.1)  # fmt: skip

        trainer, expected = made(), made()
        with self.assertRaisesRegex(penstock.PenstockError, "singular"):
            trainer.fit(broken, y, shuffle=False)
        expected.fit(x[:32], y[:32], shuffle=False)
        self.assertEqual(trainer.steps, 4)
        for name, value in trainer.state_dict().items():
            self.assertTrue(torch.equal(value, expected.state_dict()[name]), name)
        trainer.save(self.folder)
        other = made()
        other.resume(self.folder)
        self.assertEqual(other.steps, 4)
        self.assertEqual(other.fit(x, y), [{**trainer.fit(x, y)[0], "seconds": unittest.mock.ANY}])

    def test_the_seed_is_the_checkpoints(self):
        trainer = trainer_of(seed=5)
        trainer.fit(self.x, self.y)
        self.goes_on(trainer, self.resumed(trainer, seed=6))

    def test_batch_norm_and_a_last_step_of_one_sample(self):
        def made(**options):
            torch.manual_seed(1)
            net = nn.Sequential(nn.Linear(6, 8), nn.BatchNorm1d(8), nn.Linear(8, 3))
            options = {"batch_size": 64, "micro_batches": 1, **options}
            return penstock.Trainer(net, self.x[:4], strategy="serial", workers=1, progress=False,
                                    **options)  # fmt: skip

        x, y = samples(257)
        trainer = made()
        with self.assertRaisesRegex(penstock.PenstockError, r"1 of 257 .*\(drop_last\)"):
            trainer.fit(x, y)
        loader = DataLoader(TensorDataset(x, y), batch_size=64)
        with self.assertRaisesRegex(penstock.PenstockError, "drop_last=True of the DataLoader"):
            trainer.fit(loader)
        with self.assertRaisesRegex(penstock.PenstockError, "a step of 1 sample"):
            trainer.step(x[:1], y[:1])
        self.assertEqual(trainer.steps, 0)
        self.assertEqual(trainer.evaluate(loader)["samples"], 257)
        trainer.fit(DataLoader(TensorDataset(x, y), batch_size=64, drop_last=True))
        self.assertEqual(trainer.steps, 4)
        trainer = made(drop_last=True)
        trainer.fit(x, y)
        self.assertEqual(trainer.steps, 4)
        with self.assertRaisesRegex(penstock.PenstockError, "a step of 1 sample"):
            made(batch_size=1)
        with self.assertRaisesRegex(penstock.PenstockError, "fewer micro-batches or a larger"):
            made(batch_size=4, micro_batches=4)


class Pictures(Dataset):
    """As torchvision's data sets: with the names of classes."""

    def __init__(self, classes):
        self.classes = classes
        self.x, self.y = samples()

    def __len__(self):
        return len(self.x)

    def __getitem__(self, index):
        return self.x[index], self.y[index]


class Classes(unittest.TestCase):
    def setUp(self):
        folder = tempfile.TemporaryDirectory()
        self.addCleanup(folder.cleanup)
        self.folder = folder.name

    def test_names_come_from_the_option_the_loader_or_the_checkpoint(self):
        text, numbers = ["1", "10", "2"], ["1", "2", "10"]
        told = trainer_of(classes=text)
        self.assertEqual(told.classes, text)
        seen = trainer_of()
        seen.fit(DataLoader(Subset(Pictures(text), range(16)), batch_size=BATCH))
        self.assertEqual(seen.classes, text)
        told.save(self.folder)
        other = trainer_of()
        self.assertEqual(other.classes, [])
        other.resume(self.folder)
        self.assertEqual(other.classes, text)
        with self.assertRaisesRegex(penstock.PenstockError, "class 1 is '10'.* class 1 is '2'"):
            other.fit(DataLoader(Pictures(numbers), batch_size=BATCH))
        with self.assertRaisesRegex(penstock.PenstockError, "class 1 is '10'"):
            other.evaluate(DataLoader(Pictures(numbers), batch_size=BATCH))
        self.assertEqual(other.steps, 0)

    def test_a_checkpoint_of_other_classes_changes_nothing(self):
        trained = trainer_of(classes=["cat", "dog", "hen"])
        trained.fit(*samples())
        trained.save(self.folder)
        for classes, found in ((["cat", "hen", "dog"], "'dog'.*'hen'"), (["cat", "dog"], "none")):
            other = trainer_of(classes=classes)
            before = other.state_dict()
            with self.assertRaisesRegex(penstock.PenstockError, found):
                other.resume(self.folder)
            self.assertEqual(other.steps, 0)
            for name, value in other.state_dict().items():
                self.assertTrue(torch.equal(value, before[name]))

    def test_what_is_no_name_is_refused_or_not_looked_at(self):
        for classes in ("cat", [1, 2], 3):
            with self.assertRaisesRegex(TypeError, "classes: expected names"):
                trainer_of(classes=classes)
        trainer = trainer_of()
        trainer.fit(DataLoader(Pictures([("cat", "house cat")]), batch_size=BATCH))
        self.assertEqual(trainer.classes, [])


if __name__ == "__main__":
    unittest.main()
