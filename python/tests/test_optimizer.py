"""Optimisers and learning rates: as torch.optim has them.

test_optimizer.py [-k NAME]
"""

import random
import tempfile
import unittest
import warnings

import rate_schedules
import torch
from torch import nn
from torch.optim import (
    ASGD,
    SGD,
    Adafactor,
    Adagrad,
    Adam,
    AdamW,
    Muon,
    NAdam,
    RMSprop,
    Rprop,
    lr_scheduler,
    swa_utils,
)

import penstock
from penstock._optimizer import Optimizer

SAMPLES, BATCH = 96, 16


class Net(nn.Module):
    """Weights, biases and norms; the last weight is the first one's."""

    def __init__(self, tied=True):
        super().__init__()
        torch.manual_seed(1)
        self.first = nn.Linear(6, 8)
        self.norm = nn.LayerNorm(8)
        self.second = nn.Linear(8, 8)
        self.head = nn.Linear(6, 8)
        if tied:
            self.head.weight = self.first.weight

    def forward(self, x):
        h = torch.tanh(self.norm(self.first(x)))
        h = torch.tanh(self.second(h))
        return h @ self.head.weight + h[:, :6] * self.head.bias[:6]


def samples():
    generator = torch.Generator().manual_seed(2)
    x = torch.randn(SAMPLES, 6, generator=generator)
    return x, (x.sum(1) > 0).long()


def groups(module, **no_decay):
    """Matrices decay, the rest does not, as many programs have it."""
    matrices = [one for one in module.parameters() if one.dim() > 1]
    rest = [one for one in module.parameters() if one.dim() == 1]
    return [{"params": matrices, "weight_decay": 0.3}, {"params": rest, "weight_decay": 0.0,
                                                        **no_decay}]  # fmt: skip


def trainer_of(module, x, **options):
    options = {"strategy": "serial", "workers": 1, "micro_batches": 1, **options}
    return penstock.Trainer(module, x[:4], batch_size=BATCH, progress=False, **options)


def trained_by_torch(module, optimizer, x, y, steps, scheduler=None):
    """Rates and the state dict after steps on the batches in order."""
    rates = []
    for k in range(steps):
        begin = BATCH * k % SAMPLES
        optimizer.zero_grad()
        loss = nn.functional.cross_entropy(module(x[begin : begin + BATCH]),
                                           y[begin : begin + BATCH])  # fmt: skip
        loss.backward()
        rates.append(max(group["lr"] for group in optimizer.param_groups))
        optimizer.step()
        if scheduler is not None:
            scheduler.step()
    return rates, module.state_dict()


class Weights(nn.Module):
    """A loss whose gradients are the sample's numbers."""

    SHAPES = ((6, 4), (3, 9), (7,), (2, 3, 5))
    NUMBERS = 24 + 27 + 7 + 30

    def __init__(self):
        super().__init__()
        generator = torch.Generator().manual_seed(3)
        self.weights = nn.ParameterList(
            nn.Parameter(0.3 * torch.randn(shape, generator=generator)) for shape in self.SHAPES
        )

    def forward(self, x):
        flat = torch.cat([one.flatten() for one in self.weights])
        return (flat * x).sum()


def settings_of(make, seed):
    """One of many settings of an optimiser of torch.optim, by a seed."""
    choose = random.Random(seed).choice
    common = {"lr": choose([0.003, 0.01, 0.03]), "weight_decay": choose([0.0, 0.01, 0.1])}
    betas = {"betas": choose([(0.9, 0.999), (0.8, 0.95), (0.5, 0.9)]),
             "eps": choose([1e-8, 1e-4])}  # fmt: skip
    climbs = {"maximize": choose([True, False])}
    own = {
        SGD: lambda: {"momentum": 0.9, "nesterov": choose([True, False]), **climbs},
        Adam: lambda: {"amsgrad": choose([True, False]), **betas, **climbs},
        AdamW: lambda: {"amsgrad": choose([True, False]), **betas, **climbs},
        NAdam: lambda: {"momentum_decay": choose([0.004, 0.1]), **betas, **climbs,
                        "decoupled_weight_decay": choose([True, False])},
        RMSprop: lambda: {"alpha": choose([0.99, 0.9]), "momentum": choose([0.0, 0.9]),
                          "eps": choose([1e-8, 1e-3]), "centered": choose([True, False]),
                          **climbs},
        Adagrad: lambda: {"lr_decay": choose([0.0, 0.1]), **climbs,
                          "initial_accumulator_value": choose([0.0, 0.5])},
        ASGD: lambda: {"lambd": choose([1e-4, 0.1]), "alpha": choose([0.75, 0.5]),
                       "t0": choose([1e6, 5]), **climbs},
        Adafactor: lambda: {"beta2_decay": choose([-0.8, -0.5]), "d": choose([1.0, 2.0]),
                            "eps": choose([(None, 1e-3), (1e-5, 0.1)]), **climbs},
    }[make]()  # fmt: skip
    return {**common, **own}


class AllOptimizers(unittest.TestCase):
    """Each against torch.optim over 50 random steps, from the same gradients."""

    def setUp(self):
        torch.set_num_threads(1)

    def check(self, make, **options):
        """`make(weights)`: an optimiser of torch.optim, or a list of them."""
        generator = torch.Generator().manual_seed(4)
        samples = torch.randn(50, 1, Weights.NUMBERS, generator=generator)
        expected = Weights()
        optimizers = make(list(expected.parameters()))
        optimizers = optimizers if isinstance(optimizers, list) else [optimizers]
        for sample in samples:
            for optimizer in optimizers:
                optimizer.zero_grad()
            expected(sample).backward()
            for optimizer in optimizers:
                optimizer.step()
        module = Weights()
        trainer = penstock.Trainer(
            module, samples[0], strategy="serial", workers=1, micro_batches=1, batch_size=1,
            progress=False, optimizer=make(list(module.parameters())), **options
        )  # fmt: skip
        for sample in samples:
            trainer.step(sample)
        found = trainer.state_dict()
        for name, value in expected.state_dict().items():
            torch.testing.assert_close(found[name], value, rtol=0, atol=1e-6, msg=name)
            self.assertGreater(float((value - Weights().state_dict()[name]).abs().max()), 1e-3)

    def test_each_steps_as_torch_does(self):
        for make in (SGD, Adam, AdamW, NAdam, RMSprop, Adagrad, ASGD, Adafactor):
            for seed in range(3):
                options = settings_of(make, seed)
                with self.subTest(make.__name__, **options):
                    self.check(lambda weights: make(weights, **options))

    def test_muon_beside_adamw(self):
        for options in (
            {},
            {"nesterov": False, "weight_decay": 0.0, "momentum": 0.8},
            {"adjust_lr_fn": "match_rms_adamw", "ns_steps": 3},
        ):
            with self.subTest(**options):
                self.check(
                    lambda weights: [
                        Muon([one for one in weights if one.dim() == 2], lr=0.02, **options),
                        AdamW([one for one in weights if one.dim() != 2], lr=0.01,
                              betas=(0.8, 0.95)),
                    ]
                )  # fmt: skip

    def test_momenta_cycle_as_those_of_torch(self):
        samples = torch.randn(50, 1, Weights.NUMBERS, generator=torch.Generator().manual_seed(5))
        one_cycle = ("OneCycleLR", lambda o: lr_scheduler.OneCycleLR(o, 0.01, 50))
        phases = (
            "OneCycleLR,total_steps=50,pct_start=0.2,anneal_strategy=linear,three_phase=yes,"
            "base_momentum=0.7,max_momentum=0.9",
            lambda o: lr_scheduler.OneCycleLR(o, 0.01, 50, pct_start=0.2, three_phase=True,
                                              anneal_strategy="linear", base_momentum=0.7,
                                              max_momentum=0.9),
        )
        triangles = (
            "CyclicLR,max_lr=0.02,step_size_up=7,step_size_down=4,mode=exp_range,gamma=0.97",
            lambda o: lr_scheduler.CyclicLR(o, 0.01, 0.02, 7, 4, mode="exp_range", gamma=0.97),
        )
        for make, name, options in (
            (lambda w: SGD(w, lr=0.01, momentum=0.9), "SGD", {"momentum": 0.9}),
            (lambda w: SGD(w, lr=0.01, momentum=0.8, nesterov=True), "SGD",
             {"momentum": 0.8, "nesterov": True}),
            (lambda w: Adam(w, lr=0.01), "Adam", {}),
            (lambda w: AdamW(w, lr=0.01, amsgrad=True), "adamw,amsgrad", {"weight_decay": 0.01}),
            (lambda w: RMSprop(w, lr=0.01, momentum=0.9), "RMSprop", {"momentum": 0.9}),
        ):
            for text, schedule in (one_cycle, phases, triangles):
                with self.subTest(name, schedule=text):
                    expected = Weights()
                    optimizer = make(list(expected.parameters()))
                    scheduler = schedule(optimizer)
                    for sample in samples:
                        optimizer.zero_grad()
                        expected(sample).backward()
                        optimizer.step()
                        with warnings.catch_warnings():
                            warnings.simplefilter("ignore")  # of the schedule's end
                            if scheduler.last_epoch < 49:
                                scheduler.step()
                    found = self.trained(samples, optimizer=name, lr=0.01, lr_schedule=text,
                                         total_steps=50, **options).state_dict()  # fmt: skip
                    still = self.trained(samples, optimizer=name, lr=0.01, total_steps=50,
                                         lr_schedule=text + ",cycle_momentum=no",
                                         **options).state_dict()  # fmt: skip
                    for key, value in expected.state_dict().items():
                        torch.testing.assert_close(found[key], value, rtol=0, atol=1e-6, msg=key)
                        self.assertGreater(float((value - still[key]).abs().max()), 1e-5)
        with self.assertRaisesRegex(penstock.PenstockError, "changes the momentum"):
            self.trained(samples, optimizer="NAdam", lr_schedule="OneCycleLR,cycle_momentum=yes",
                         total_steps=50)  # fmt: skip

    def trained(self, samples, **options):
        trainer = penstock.Trainer(
            Weights(), samples[0], strategy="serial", workers=1, micro_batches=1, batch_size=1,
            progress=False, **options
        )  # fmt: skip
        for sample in samples:
            trainer.step(sample)
        return trainer

    def test_means_are_those_of_averaged_models(self):
        samples = torch.randn(50, 1, Weights.NUMBERS, generator=torch.Generator().manual_seed(6))
        for start, options, average in (
            (0, {"ema": 0.9}, swa_utils.get_ema_multi_avg_fn(0.9)),
            (20, {"swa_start": 20}, swa_utils.get_swa_multi_avg_fn()),
        ):
            for make, name in ((SGD, "SGD"), (AdamW, "AdamW")):
                with self.subTest(name, **options):
                    expected = Weights()
                    optimizer = make(expected.parameters(), lr=0.01)
                    mean = swa_utils.AveragedModel(expected, multi_avg_fn=average)
                    for step, sample in enumerate(samples):
                        optimizer.zero_grad()
                        expected(sample).backward()
                        optimizer.step()
                        if step >= start:
                            mean.update_parameters(expected)
                    trainer = self.trained(samples, optimizer=name, lr=0.01, **options)
                    found = trainer.averaged_state_dict()
                    for key, value in mean.module.state_dict().items():
                        torch.testing.assert_close(found[key], value, rtol=0, atol=1e-6, msg=key)
                    loss = float(mean.module(samples[0]).detach())
                    self.assertAlmostEqual(trainer.evaluate(samples[0])["loss"], loss, 4)
                    # The weights that are trained are back after it.
                    for key, value in expected.state_dict().items():
                        torch.testing.assert_close(trainer.state_dict()[key], value, rtol=0,
                                                   atol=1e-6, msg=key)  # fmt: skip
        with self.assertRaisesRegex(penstock.PenstockError, "no mean of the weights"):
            self.trained(samples[:1]).averaged_state_dict()
        with self.assertRaisesRegex(penstock.PenstockError, "one of them"):
            self.trained(samples[:1], ema=0.5, swa_start=3)

    def test_those_that_torch_has_not_are_known_by_name(self):
        samples = torch.randn(3, 1, Weights.NUMBERS, generator=torch.Generator().manual_seed(4))
        for name, more in (
            ("NAdamW", {"betas": (0.8, 0.9), "weight_decay": 0.1}),
            ("Lion", {"betas": (0.8, 0.9)}),
            ("LAMB", {"eps": 1e-5}),
            ("LARS", {"momentum": 0.5}),
            ("lars,trust=0.01,maximize", {}),
            ("Muon", {}),
            ("adam,amsgrad", {"lr": 0.02}),
        ):
            with self.subTest(name):
                trainer = penstock.Trainer(
                    Weights(), samples[0], strategy="serial", workers=1, micro_batches=1,
                    batch_size=1, progress=False, optimizer=name, **more
                )  # fmt: skip
                losses = [trainer.step(samples[0])["loss"] for _ in range(3)]
                falls = losses[2] < losses[0]
                self.assertEqual(falls, "maximize" not in name, losses)


class Optimizers(unittest.TestCase):
    def setUp(self):
        torch.set_num_threads(1)
        self.x, self.y = samples()

    def close(self, found, expected):
        self.assertEqual(found.keys(), expected.keys())
        for name, value in expected.items():
            torch.testing.assert_close(found[name], value, rtol=2e-5, atol=2e-6, msg=name)

    def test_objects_learn_what_pytorch_learns(self):
        for make in (
            lambda m: SGD(m.parameters(), lr=0.1),
            lambda m: SGD(groups(m, lr=0.02), lr=0.1, momentum=0.9, nesterov=True),
            lambda m: Adam(groups(m, lr=0.02), lr=0.01, betas=(0.8, 0.99)),
            lambda m: AdamW(groups(m, lr=0.02), lr=0.01, eps=1e-6),
            lambda m: Adam(groups(m), lr=0.01, decoupled_weight_decay=True),
        ):
            for tied in (False, True):
                expected = Net(tied)
                optimizer = make(expected)
                with self.subTest(str(optimizer), tied=tied):
                    _, weights = trained_by_torch(expected, optimizer, self.x, self.y, 12)
                    module = Net(tied)
                    trainer = trainer_of(module, self.x, optimizer=make(module))
                    trainer.fit(self.x, self.y, epochs=2, shuffle=False)
                    self.close(trainer.state_dict(), weights)

    def test_groups_learn_the_same_under_every_cut(self):
        results = []
        for strategy, workers in (("serial", 1), ("gpipe", 3), ("1f1b-flush", 3), ("dp", 2)):
            module = Net()
            trainer = trainer_of(module, self.x, strategy=strategy, workers=workers,
                                 micro_batches=4, optimizer=AdamW(groups(module, lr=0.1), lr=0.01))
            losses = [one["loss"] for one in trainer.fit(self.x, self.y, epochs=3)]
            replicas = max(stage["replicas"] for stage in trainer.plan["stages"])
            results.append((strategy, replicas, losses, trainer.state_dict()))
        self.assertEqual([replicas for _, replicas, _, _ in results[:2]], [1, 1])
        _, _, expected_losses, expected = results[0]
        for strategy, replicas, losses, weights in results[1:]:
            with self.subTest(strategy, replicas=replicas):
                self.close(weights, expected)
                if replicas > 1:
                    continue  # they add the gradients of a mini-batch in another order
                self.assertEqual(losses, expected_losses)
                for name, value in expected.items():
                    self.assertTrue(torch.equal(weights[name], value), name)

    def test_schedules_are_those_of_torch(self):
        for name, make in {
            "StepLR": lambda o: lr_scheduler.StepLR(o, 3, gamma=0.5),
            "MultiStepLR": lambda o: lr_scheduler.MultiStepLR(o, [2, 5]),
            "ExponentialLR": lambda o: lr_scheduler.ExponentialLR(o, 0.9),
            "ConstantLR": lambda o: lr_scheduler.ConstantLR(o, total_iters=4),
            "LinearLR": lambda o: lr_scheduler.LinearLR(o, total_iters=4),
            "PolynomialLR": lambda o: lr_scheduler.PolynomialLR(o, 10, power=2),
            "CosineAnnealingLR": lambda o: lr_scheduler.CosineAnnealingLR(o, 6),
            "Restarts": lambda o: lr_scheduler.CosineAnnealingWarmRestarts(o, 4),
            "LambdaLR": lambda o: lr_scheduler.LambdaLR(o, lambda k: min(1.0, k / 5)),
            "CyclicLR": lambda o: lr_scheduler.CyclicLR(o, 0.01, 0.1, 3, cycle_momentum=False),
            "OneCycleLR": lambda o: lr_scheduler.OneCycleLR(o, 0.5, 12, cycle_momentum=False),
            "SequentialLR": lambda o: lr_scheduler.SequentialLR(
                o, [lr_scheduler.LinearLR(o), lr_scheduler.ExponentialLR(o, 0.9)], [3]
            ),
        }.items():
            with self.subTest(name):
                expected = Net()
                optimizer = SGD(expected.parameters(), lr=0.1, momentum=0.9)
                with warnings.catch_warnings():
                    warnings.simplefilter("ignore")  # PyTorch's of its own schedules
                    rates, weights = trained_by_torch(expected, optimizer, self.x, self.y, 12,
                                                      make(optimizer))  # fmt: skip
                trainer = trainer_of(Net(), self.x, lr=0.1, momentum=0.9, lr_schedule=make)
                found = []
                self.assertEqual(trainer.lr, rates[0])
                trainer.fit(self.x, self.y, shuffle=False,
                            callbacks=lambda step: found.append(step["lr"]))  # fmt: skip
                for begin in range(0, SAMPLES, BATCH):
                    batch = slice(begin, begin + BATCH)
                    found.append(trainer.step(self.x[batch], self.y[batch])["lr"])
                self.assertEqual(found, rates)
                self.close(trainer.state_dict(), weights)

    def test_schedules_by_name_are_those_of_torch(self):
        with tempfile.TemporaryDirectory() as folder:
            path = f"{folder}/net.pt2"
            penstock.export(Net(), self.x[:4], path)
            for text, make in rate_schedules.SCHEDULES.items():
                with self.subTest(text):
                    trainer = penstock.Trainer(
                        path, strategy="serial", workers=1, micro_batches=1, batch_size=BATCH,
                        progress=False, lr=rate_schedules.BASE, lr_schedule=text,
                        total_steps=rate_schedules.STEPS,
                    )  # fmt: skip
                    for step, expected in enumerate(rate_schedules.rates_of(make)):
                        found = trainer._session.rate_of(step)
                        self.assertLess(abs(found - expected), 1e-12, step)
            with self.assertRaisesRegex(penstock.PenstockError, "needs step_size="):
                penstock.Trainer(path, workers=1, lr_schedule="StepLR", progress=False)

    def test_means_are_the_same_under_every_cut_and_go_on(self):
        for options in ({"ema": 0.8}, {"swa_start": 5}):
            with self.subTest(**options), tempfile.TemporaryDirectory() as folder:
                results = []
                for strategy, workers in (("serial", 1), ("gpipe", 3), ("1f1b-flush", 3)):
                    trainer = trainer_of(Net(), self.x, strategy=strategy, workers=workers,
                                         straight=workers > 1, micro_batches=4, optimizer="AdamW",
                                         lr=0.01, **options)  # fmt: skip
                    trainer.fit(self.x, self.y, epochs=2)
                    results.append((trainer.averaged_state_dict(),
                                    trainer.evaluate(self.x, self.y)["loss"]))
                for weights, loss in results[1:]:
                    self.assertEqual(loss, results[0][1])
                    for name, value in results[0][0].items():
                        self.assertTrue(torch.equal(weights[name], value), name)
                # After one epoch, saved, the other by another trainer.
                first = trainer_of(Net(), self.x, micro_batches=4, optimizer="AdamW", lr=0.01,
                                   **options)  # fmt: skip
                first.fit(self.x, self.y)
                saved = first.save(folder)
                mean = torch.load(f"{saved}/average.pt", weights_only=True)
                for name, value in first.averaged_state_dict().items():
                    self.assertTrue(torch.equal(mean[name], value), name)
                second = trainer_of(Net(), self.x, micro_batches=4, optimizer="AdamW", lr=0.01,
                                    **options)  # fmt: skip
                second.resume(folder)
                second.fit(self.x, self.y)
                for name, value in results[0][0].items():
                    self.assertTrue(torch.equal(second.averaged_state_dict()[name], value), name)
                other = trainer_of(Net(), self.x, optimizer="AdamW", lr=0.01)
                with self.assertRaisesRegex(penstock.PenstockError, "same settings"):
                    other.resume(folder)

    def test_rules_of_large_batches(self):
        trainer = trainer_of(Net(), self.x, lr=0.1, micro_batches=None, base_batch_size=4,
                             momentum=0.9, large_batch="all", scale_steps=6)
        self.assertEqual([round(trainer._rate_of(step), 12) for step in (0, 3, 6, 90)],
                         [0.1, 0.25, 0.4, 0.4])  # fmt: skip
        self.assertIn("0.1 times 4", trainer.large_batch["scale"])
        self.assertIn("file", trainer.large_batch["gamma"])
        # Without norms and biases in the decay: two groups in PyTorch.
        expected = Net()
        optimizer = AdamW(groups(expected), lr=0.01)
        _, weights = trained_by_torch(expected, optimizer, self.x, self.y, 12)
        trainer = trainer_of(Net(), self.x, optimizer="AdamW", lr=0.01, weight_decay=0.3,
                             large_batch="decay")  # fmt: skip
        trainer.fit(self.x, self.y, epochs=2, shuffle=False)
        self.close(trainer.state_dict(), weights)
        for options in ({"large_batch": "all"},
                        {"large_batch": "scale", "optimizer": SGD(Net().parameters(), lr=0.1)}):
            with self.assertRaises(ValueError):
                trainer_of(Net(), self.x, **options)

    def test_rates_that_follow_evaluations_are_the_callers(self):
        with self.assertRaisesRegex(penstock.PenstockError, "the caller evaluates"):
            trainer_of(Net(), self.x, lr_schedule="ReduceLROnPlateau,patience=3")

    def test_a_schedule_moves_all_groups(self):
        expected = Net()
        optimizer = AdamW(groups(expected, lr=0.002), lr=0.01)
        make = lambda o: lr_scheduler.LambdaLR(o, lambda k: (k + 1) / 4)  # noqa: E731
        _, weights = trained_by_torch(expected, optimizer, self.x, self.y, 6, make(optimizer))
        module = Net()
        trainer = trainer_of(module, self.x, optimizer=AdamW(groups(module, lr=0.002), lr=0.01),
                             lr_schedule=make)  # fmt: skip
        trainer.fit(self.x, self.y, shuffle=False)
        self.close(trainer.state_dict(), weights)

    def test_schedules_that_the_caller_advances(self):
        module = Net()
        optimizer = SGD(module.parameters(), lr=0.4)
        trainer = trainer_of(module, self.x, optimizer=optimizer)
        scheduler = lr_scheduler.StepLR(optimizer, 1, gamma=0.5)
        rates = []

        def keep(step):
            rates.append(step["lr"])

        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # the optimiser itself makes no step
            for _ in range(2):
                trainer.fit(self.x, self.y, batch_size=48, callbacks=keep)
                scheduler.step()
            loader = torch.utils.data.DataLoader(
                torch.utils.data.TensorDataset(self.x, self.y), batch_size=48
            )
            trainer.fit(loader, callbacks=[keep, lambda step: scheduler.step()])
        self.assertEqual(rates, [0.4, 0.4, 0.2, 0.2, 0.1, 0.05])
        self.assertEqual(trainer.lr, 0.025)

    def test_rates_do_not_change_in_steps_that_overlap(self):
        trainer = trainer_of(Net(), self.x, lr=0.4)
        with self.assertRaisesRegex(RuntimeError, "rates are fixed"):
            trainer.fit(self.x, self.y, callbacks=lambda step: trainer.scale_lr(0.5))
        rates = []
        batches = [(self.x[:BATCH], self.y[:BATCH])] * 3

        def halve(step):
            rates.append(step["lr"])
            trainer.scale_lr(0.5 ** len(rates))

        trainer.fit(batches, callbacks=halve)
        self.assertEqual(rates, [0.4, 0.2, 0.1])

    def test_a_run_goes_on_at_the_rate_where_it_was(self):
        make = lambda o: lr_scheduler.ExponentialLR(o, 0.5)  # noqa: E731
        with tempfile.TemporaryDirectory() as folder:
            first = trainer_of(Net(), self.x, lr=1.0, lr_schedule=make)
            first.fit(self.x, self.y, batch_size=48, checkpoint=folder)
            second = trainer_of(Net(), self.x, lr=1.0, lr_schedule=make)
            self.assertTrue(second.resume(folder))
            self.assertEqual(second.lr, 0.25)

    def refuses(self, message, error=ValueError, module=None, **options):
        with self.subTest(message), self.assertRaisesRegex(error, message):
            trainer_of(module or Net(), self.x, **options)

    def test_what_is_not_supported_is_said(self):
        net = Net()
        everything = list(net.parameters())
        self.refuses("Rprop", optimizer=Rprop(everything))
        self.refuses("found 'lyon'", optimizer="lyon")
        self.refuses("dampening=0.1", module=net,
                     optimizer=SGD(everything, momentum=0.9, dampening=0.1))  # fmt: skip
        self.refuses("a Muon for matrices and an AdamW", optimizer=[Adam(everything)])
        self.refuses("has no 'centered'", penstock.PenstockError, optimizer="adam,centered")
        self.refuses("betas is for Adam, AdamW", optimizer="RMSprop", betas=(0.9, 0.99))
        self.refuses("lr: the optimizer's own", module=net, optimizer=Adam(everything), lr=0.1)
        self.refuses("does not have the parameter 'first.weight'", module=net,
                     optimizer=SGD(everything[1:], lr=0.1))  # fmt: skip
        self.refuses("does not have the parameter", optimizer=SGD(everything, lr=0.1))
        apart = [{"params": everything[:1]}, {"params": everything[1:], "momentum": 0.5}]
        self.refuses("momentum is 0 and 0.5", module=net, optimizer=SGD(apart, lr=0.1))
        used = SGD(everything, lr=0.1, momentum=0.9)
        net(self.x).sum().backward()
        used.step()
        self.refuses("made steps already", module=net, optimizer=used)
        scheduler = lr_scheduler.StepLR(SGD(everything, lr=0.1), 3)
        self.refuses("such as lambda optimizer: StepLR", TypeError, lr_schedule=scheduler)
        self.refuses("depend on the step alone", TypeError,
                     lr_schedule=lambda o: lr_scheduler.ReduceLROnPlateau(o))  # fmt: skip
        self.refuses("depend on the step alone, found NoneType", TypeError,
                     lr_schedule=lambda o: None)  # fmt: skip
        self.refuses("one of another optimizer", ValueError, lr_schedule=lambda o: scheduler)
        self.refuses("have its own|has its own", lr_warmup=3,
                     lr_schedule=lambda o: lr_scheduler.StepLR(o, 3))  # fmt: skip
        for bad in (-0.1, float("nan")):
            self.refuses("lr: expected a number of at least 0", lr=bad)

    def test_what_changes_later_is_said(self):
        module = Net()
        optimizer = SGD(groups(module, lr=0.1), lr=0.2)
        trainer = trainer_of(module, self.x, optimizer=optimizer)
        optimizer.param_groups[1]["lr"] = 0.2
        with self.assertRaisesRegex(ValueError, "stay in proportion"):
            trainer.fit(self.x, self.y)
        optimizer.param_groups[1]["lr"] = 0.1
        optimizer.param_groups[0]["weight_decay"] = 0.5
        with self.assertRaisesRegex(ValueError, "weight_decay was 0.3 and is 0.5"):
            trainer.step(self.x[:4], self.y[:4])
        optimizer.param_groups[0]["weight_decay"] = 0.3
        optimizer.param_groups[0]["lr"] = optimizer.param_groups[1]["lr"] = 0.0
        self.assertEqual(trainer.step(self.x[:4], self.y[:4])["lr"], 0.0)

        def make(optimizer):
            return lr_scheduler.OneCycleLR(optimizer, 0.5, total_steps=12)

        trainer = trainer_of(Net(), self.x, lr=0.1, momentum=0.9, lr_schedule=make)
        with self.assertRaisesRegex(ValueError, "cycle_momentum=False"):
            trainer.fit(self.x, self.y)

    def test_the_largest_rate_is_the_trainers(self):
        module = Net()
        optimizer = SGD(groups(module, lr=0.5), lr=0.1)
        spec = Optimizer(optimizer, module, lr=None, momentum=None, nesterov=None,
                         weight_decay=None, betas=None, eps=None)  # fmt: skip
        self.assertEqual(spec.rate, 0.5)
        self.assertEqual([factor for _, factor, _, _ in spec.spec["groups"]], [0.2, 1.0])


if __name__ == "__main__":
    unittest.main()
