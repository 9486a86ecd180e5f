"""Optimisers and learning rates: as torch.optim has them.

test_optimizer.py [-k NAME]
"""

import functools
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


class Square(nn.Module):
    """Square matrices alone, whose gradients have full rank, and so one pair of eigenbases."""

    def __init__(self):
        super().__init__()
        torch.manual_seed(4)
        self.first = nn.Linear(6, 6)
        self.second = nn.Linear(6, 6)

    def forward(self, x):
        return self.second(torch.tanh(self.first(x)))


class Soap:
    """Algorithm 3 of Vyas et al. 2024 in float64, as plainly as it can be written: bases in the
    order of their eigenvalues, a first step that only makes them, AdamW for vectors."""

    def __init__(self, parameters, lr, decay, every, beta=0.95, epsilon=1e-8):
        self.parameters = list(parameters)
        self.lr, self.decay, self.every, self.beta, self.epsilon = lr, decay, every, beta, epsilon
        self.state = [None] * len(self.parameters)
        self.steps = 0

    @torch.no_grad()
    def step(self):
        self.steps += 1
        for i, weight in enumerate(self.parameters):
            if weight.dim() == 2:
                self.matrix(i, weight, weight.grad)
            else:
                mean, square = self.state[i] or (torch.zeros_like(weight),) * 2
                self.state[i] = self.adam(weight, mean, square, weight.grad, self.steps,
                                          lambda one: one, lambda one: one)  # fmt: skip

    def adam(self, weight, mean, square, gradient, step, seen, back):
        mean = self.beta * mean + (1 - self.beta) * gradient
        square = self.beta * square + (1 - self.beta) * seen(gradient) ** 2
        by = 1 - self.beta**step
        weight *= 1 - self.lr * self.decay
        weight -= self.lr * back(seen(mean) / by / ((square / by).sqrt() + self.epsilon))
        return mean, square

    def matrix(self, i, weight, gradient):
        products = gradient @ gradient.T, gradient.T @ gradient
        if self.steps == 1:
            pairs = [(1 - self.beta) * one for one in products]
            bases = [torch.linalg.eigh(one).eigenvectors.flip(1) for one in pairs]
            self.state[i] = torch.zeros_like(weight), torch.zeros_like(weight), pairs, bases
            return
        mean, square, pairs, (left, right) = self.state[i]
        mean, square = self.adam(weight, mean, square, gradient, self.steps - 1,
                                 lambda one: left.T @ one @ right,
                                 lambda one: left @ one @ right.T)  # fmt: skip
        pairs = [self.beta * old + (1 - self.beta) * new for old, new in zip(pairs, products)]
        if (self.steps - 1) % self.every == 0:
            orders = [(basis.T @ one @ basis).diag().argsort(descending=True)
                      for one, basis in zip(pairs, (left, right))]  # fmt: skip
            square = square[orders[0]][:, orders[1]]
            left, right = (torch.linalg.qr(one @ basis[:, order]).Q
                           for one, basis, order in zip(pairs, (left, right), orders))  # fmt: skip
        self.state[i] = mean, square, pairs, (left, right)


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
        with self.assertRaises(ValueError):
            trainer_of(Net(), self.x, large_batch="scale", optimizer=SGD(Net().parameters(), lr=1))
        # The same texts are refused as on the command line, before a plan is measured.
        for rules in ("all", "warmup,scale", "-gamma", "all,-decay"):
            with self.assertRaisesRegex(penstock.PenstockError, "the warm-up needs scale_steps"):
                trainer_of(Net(), self.x, large_batch=rules, base_batch_size=4)
        with self.assertRaisesRegex(penstock.PenstockError, "expected all, scale, warmup"):
            trainer_of(Net(), self.x, large_batch="all,-warmups", base_batch_size=4)
        for options in ({"large_batch": "all,-warmup"}, {"large_batch": "scale"},
                        {"large_batch": "all", "lr_warmup": 3},
                        {"large_batch": "all", "base_batch_size": BATCH}):
            trainer_of(Net(), self.x, **{"base_batch_size": 4, **options})

    def test_soap_is_its_paper_in_float64(self):
        generator = torch.Generator().manual_seed(5)
        y = torch.randn(SAMPLES, 6, generator=generator)
        for options, every in (("soap", 10), ("soap,basis_every=2", 2)):
            module = Square().double()
            optimizer = Soap(module.parameters(), 0.01, 0.1, every)
            trainer = trainer_of(Square(), self.x, optimizer=options, lr=0.01, weight_decay=0.1,
                                 loss="mean-squared-error")  # fmt: skip
            before = trainer.state_dict()
            trainer.step(self.x[:BATCH], y[:BATCH])
            for name, value in trainer.state_dict().items():
                self.assertEqual(torch.equal(value, before[name]), value.dim() == 2, name)
            trainer = trainer_of(Square(), self.x, optimizer=options, lr=0.01, weight_decay=0.1,
                                 loss="mean-squared-error")  # fmt: skip
            for step in range(24):
                begin = BATCH * step % SAMPLES
                x, target = self.x[begin : begin + BATCH], y[begin : begin + BATCH]
                optimizer_loss = nn.functional.mse_loss(module(x.double()), target.double())
                module.zero_grad()
                optimizer_loss.backward()
                optimizer.step()
                trainer.step(x, target)
            for name, value in module.state_dict().items():
                found = trainer.state_dict()[name]
                self.assertLess((found - value).abs().max().item(), 1e-5, name)

    #: Losses that a caller may have found after each epoch.
    FOUND = (0.9, 0.8, 0.81, 0.82, 0.7, 0.75, 0.76, 0.77)

    def test_plateaus_are_pytorchs(self):
        for options, text in (
            ({"patience": 1, "factor": 0.5}, "patience=1,factor=0.5"),
            ({"mode": "max", "patience": 0, "factor": 0.3, "cooldown": 1, "min_lr": 0.002},
             "mode=max,patience=0,factor=0.3,cooldown=1,min_lr=0.002"),
            ({"patience": 0, "threshold": 0.06, "threshold_mode": "abs"},
             "patience=0,threshold=0.06,threshold_mode=abs"),
        ):
            made = (f"ReduceLROnPlateau,{text}",
                    lambda o, options=options: lr_scheduler.ReduceLROnPlateau(o, **options))
            expected = Net()
            optimizer = SGD(expected.parameters(), lr=0.1, momentum=0.9)
            scheduler = lr_scheduler.ReduceLROnPlateau(optimizer, **options)
            rates = []
            for value in self.FOUND:
                rates += trained_by_torch(expected, optimizer, self.x, self.y, 6)[0]
                scheduler.step(value)
            self.assertGreater(len(set(rates)), 2)
            for schedule in made:
                for mine in ("SGD", None):  # by name, and an object
                    with self.subTest(options=options, schedule=schedule, optimizer=mine):
                        module = Net()
                        choice = {"optimizer": mine, "lr": 0.1, "momentum": 0.9} if mine else {
                            "optimizer": SGD(module.parameters(), lr=0.1, momentum=0.9)}
                        trainer = trainer_of(module, self.x, lr_schedule=schedule, **choice)
                        found = []
                        for value in self.FOUND:
                            trainer.fit(self.x, self.y, shuffle=False,
                                        callbacks=lambda one: found.append(one["lr"]))
                            trainer.observe(value)
                        for a, b in zip(found, rates, strict=True):
                            self.assertAlmostEqual(a, b, delta=1e-12)
                        self.close(trainer.state_dict(), expected.state_dict())

    def test_the_trigger_of_a_mean_is_that_of_nt_asgd(self):
        """Merity et al. 2018, algorithm 1, by hand; the mean as AveragedModel makes it."""
        most = 1
        expected = Net()
        optimizer = SGD(expected.parameters(), lr=0.1)
        averaged, values, began = None, [], None
        for epoch, value in enumerate(self.FOUND):
            for step in range(6):
                x, y = self.x[BATCH * step :][:BATCH], self.y[BATCH * step :][:BATCH]
                optimizer.zero_grad()
                nn.functional.cross_entropy(expected(x), y).backward()
                optimizer.step()
                if averaged is not None:
                    averaged.update_parameters(expected)
            if averaged is None and len(values) > most and value > min(values[:-most]):
                averaged, began = swa_utils.AveragedModel(expected), epoch
            values.append(value)
        self.assertTrue(0 < began < len(self.FOUND) - 1)
        trainer = trainer_of(Net(), self.x, lr=0.1, swa_trigger=most)
        with tempfile.TemporaryDirectory() as folder:
            for epoch, value in enumerate(self.FOUND):
                if epoch in (2, began + 1):  # before and after the mean begins
                    trainer.save(folder)
                    trainer = trainer_of(Net(), self.x, lr=0.1, swa_trigger=most)
                    trainer.resume(folder)
                trainer.fit(self.x, self.y, shuffle=False)
                trainer.observe(value)
        self.close(trainer.state_dict(), expected.state_dict())
        self.close(trainer.averaged_state_dict(), averaged.module.state_dict())

    def test_a_plateau_goes_on_where_it_was_saved(self):
        def run(stops, lr=0.1):
            make = lambda: trainer_of(  # noqa: E731
                Net(), self.x, lr=lr, momentum=0.9,
                lr_schedule="ReduceLROnPlateau,patience=0,factor=0.5,cooldown=1")  # fmt: skip
            trainer = make()
            rates = []
            with tempfile.TemporaryDirectory() as folder:
                for epoch, value in enumerate(self.FOUND):
                    if epoch in stops:
                        trainer.save(folder)
                        trainer = make()
                        self.assertTrue(trainer.resume(folder))
                    rates.append(trainer.lr)
                    trainer.fit(self.x, self.y)
                    trainer.observe(value)
            return rates, trainer.state_dict()

        rates, weights = run(())
        for stops in ((3,), (4, 5), range(len(self.FOUND))):
            found, other = run(stops)
            self.assertEqual(found, rates)
            for name, value in weights.items():
                self.assertTrue(torch.equal(other[name], value), name)
        self.assertLess(rates[-1], rates[0] / 3)
        # Another rate counts, with the falls so far.
        with tempfile.TemporaryDirectory() as folder:
            options = {"lr_schedule": "ReduceLROnPlateau,patience=0,factor=0.5"}
            trainer = trainer_of(Net(), self.x, lr=0.1, **options)
            trainer.fit(self.x, self.y)
            for value in (0.5, 0.6):
                trainer.observe(value)
            self.assertAlmostEqual(trainer.lr, 0.05, delta=1e-12)
            trainer.save(folder)
            other = trainer_of(Net(), self.x, lr=0.02, **options)
            other.resume(folder)
            self.assertAlmostEqual(other.lr, 0.01, delta=1e-12)

    def test_a_metric_that_rises(self):
        trainer = trainer_of(Net(), self.x, lr=0.1,
                             lr_schedule="ReduceLROnPlateau,patience=0,factor=0.5")  # fmt: skip
        for value in (0.5, 0.6, 0.7):
            trainer.observe(value, rises=True)
        self.assertEqual(trainer.lr, 0.1)
        trainer.observe(0.65, rises=True)
        self.assertAlmostEqual(trainer.lr, 0.05, delta=1e-12)
        falls = trainer_of(Net(), self.x, lr=0.1, lr_schedule=lr_scheduler.ReduceLROnPlateau)
        with self.assertRaisesRegex(penstock.PenstockError, "the mode min, and rises"):
            falls.observe(0.5, rises=True)
        rising = functools.partial(lr_scheduler.ReduceLROnPlateau, mode="max")
        trainer_of(Net(), self.x, lr=0.1, lr_schedule=rising).observe(0.5, rises=True)

    def test_values_that_nothing_waits_for_are_refused(self):
        trainer = trainer_of(Net(), self.x, lr=0.1)
        with self.assertRaisesRegex(penstock.PenstockError, "ReduceLROnPlateau"):
            trainer.observe(0.5)
        trainer = trainer_of(Net(), self.x, lr=0.1, lr_schedule=lr_scheduler.ReduceLROnPlateau)
        with self.assertRaisesRegex(RuntimeError, "rates are fixed"):
            trainer.fit(self.x, self.y, callbacks=lambda one: trainer.observe(0.5))
        trainer._job, trainer._fitting = object(), True
        with self.assertRaisesRegex(RuntimeError, "only rank 0 has callbacks"):
            trainer.observe(0.5)

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
        self.refuses("of torch.optim.lr_scheduler, found NoneType", TypeError,
                     lr_schedule=lambda o: None)  # fmt: skip
        plateau = lambda o: lr_scheduler.ReduceLROnPlateau(o, min_lr=1e-3)  # noqa: E731
        self.refuses("floors in the same proportion", module=net, lr_schedule=plateau,
                     optimizer=SGD(groups(net, lr=0.01), lr=0.1))  # fmt: skip
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
