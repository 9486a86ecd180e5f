"""Schedules as text and as those of torch.optim.lr_scheduler, with PyTorch's rates.

python rate_schedules.py prints the table of penstock/train/rate_schedules_test.cpp.
"""

import sys
import warnings

import torch
from torch.optim import lr_scheduler as torch_schedules

BASE = 0.3
#: A run has so many steps: what a schedule without a length of its own takes.
STEPS = 300
#: Those in the table.
SOME = (0, 1, 2, 5, 7, 10, 30, 60, 100, 150, 233, 299)

SCHEDULES = {
    "StepLR,step_size=7,gamma=0.9": lambda o: torch_schedules.StepLR(o, 7, gamma=0.9),
    "MultiStepLR,milestones=2:60:60:150,gamma=0.5":
        lambda o: torch_schedules.MultiStepLR(o, [2, 60, 60, 150], gamma=0.5),
    "ConstantLR,factor=0.25,total_iters=60": lambda o: torch_schedules.ConstantLR(o, 0.25, 60),
    "ConstantLR": lambda o: torch_schedules.ConstantLR(o),
    "LinearLR,start_factor=0.1,end_factor=0.8,total_iters=100":
        lambda o: torch_schedules.LinearLR(o, 0.1, 0.8, 100),
    "LinearLR": lambda o: torch_schedules.LinearLR(o),
    "ExponentialLR,gamma=0.98": lambda o: torch_schedules.ExponentialLR(o, 0.98),
    "PolynomialLR,total_iters=200,power=1.5": lambda o: torch_schedules.PolynomialLR(o, 200, 1.5),
    "CosineAnnealingLR,eta_min=0.01": lambda o: torch_schedules.CosineAnnealingLR(o, STEPS, 0.01),
    "CosineAnnealingLR,T_max=70": lambda o: torch_schedules.CosineAnnealingLR(o, 70),
    "CosineAnnealingWarmRestarts,T_0=20,T_mult=2,eta_min=0.02":
        lambda o: torch_schedules.CosineAnnealingWarmRestarts(o, 20, 2, 0.02),
    "CosineAnnealingWarmRestarts,T_0=33":
        lambda o: torch_schedules.CosineAnnealingWarmRestarts(o, 33),
    "CyclicLR,base_lr=0.1,max_lr=0.7,step_size_up=20,step_size_down=50":
        lambda o: torch_schedules.CyclicLR(o, 0.1, 0.7, 20, 50, cycle_momentum=False),
    "CyclicLR,max_lr=0.7,step_size_up=25,mode=triangular2":
        lambda o: torch_schedules.CyclicLR(o, BASE, 0.7, 25, mode="triangular2",
                                           cycle_momentum=False),
    "CyclicLR,max_lr=0.7,step_size_up=25,mode=exp_range,gamma=0.99":
        lambda o: torch_schedules.CyclicLR(o, BASE, 0.7, 25, mode="exp_range", gamma=0.99,
                                           cycle_momentum=False),
    "OneCycleLR": lambda o: torch_schedules.OneCycleLR(o, BASE, STEPS, cycle_momentum=False),
    "OneCycleLR,total_steps=300,pct_start=0.2,anneal_strategy=linear,three_phase=yes":
        lambda o: torch_schedules.OneCycleLR(o, BASE, STEPS, pct_start=0.2, three_phase=True,
                                             anneal_strategy="linear", cycle_momentum=False),
    "LinearLR,total_iters=10@10:CosineAnnealingLR@150:ExponentialLR,gamma=0.9":
        lambda o: torch_schedules.SequentialLR(
            o,
            [torch_schedules.LinearLR(o, total_iters=10),
             torch_schedules.CosineAnnealingLR(o, STEPS - 10),
             torch_schedules.ExponentialLR(o, 0.9)],
            [10, 150]),
    "StepLR,step_size=50*LinearLR,total_iters=30*ExponentialLR,gamma=0.99":
        lambda o: torch_schedules.ChainedScheduler(
            [torch_schedules.StepLR(o, 50), torch_schedules.LinearLR(o, total_iters=30),
             torch_schedules.ExponentialLR(o, 0.99)]),
}  # fmt: skip


def rates_of(make, steps=STEPS):
    """PyTorch's rates of so many steps."""
    optimizer = torch.optim.SGD([torch.nn.Parameter(torch.zeros(1))], lr=BASE)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # PyTorch's of its own schedules
        scheduler = make(optimizer)
        optimizer.step()
        rates = []
        for _ in range(steps):
            rates.append(float(optimizer.param_groups[0]["lr"]))
            scheduler.step()
    return rates


#: Schedules that change the momentum, too.
MOMENTA = {
    "OneCycleLR": lambda o: torch_schedules.OneCycleLR(o, BASE, STEPS),
    "OneCycleLR,three_phase=yes,base_momentum=0.6,max_momentum=0.9": lambda o:
        torch_schedules.OneCycleLR(o, BASE, STEPS, three_phase=True, base_momentum=0.6,
                                   max_momentum=0.9),
    "CyclicLR,max_lr=0.7,step_size_up=20,step_size_down=50": lambda o:
        torch_schedules.CyclicLR(o, BASE, 0.7, 20, 50),
    "CyclicLR,max_lr=0.7,step_size_up=25,mode=triangular2,max_momentum=0.97": lambda o:
        torch_schedules.CyclicLR(o, BASE, 0.7, 25, mode="triangular2", max_momentum=0.97),
}  # fmt: skip

#: ReduceLROnPlateau, and what it sees.
PLATEAUS = {
    "ReduceLROnPlateau,patience=1": {"patience": 1},
    "ReduceLROnPlateau,patience=0,factor=0.5,cooldown=2,min_lr=0.02":
        {"patience": 0, "factor": 0.5, "cooldown": 2, "min_lr": 0.02},
    "ReduceLROnPlateau,patience=2,threshold=0.05,threshold_mode=abs,factor=0.3":
        {"patience": 2, "threshold": 0.05, "threshold_mode": "abs", "factor": 0.3},
    "ReduceLROnPlateau,mode=max,patience=1,threshold=0.01,factor=0.7,eps=0.05":
        {"mode": "max", "patience": 1, "threshold": 0.01, "factor": 0.7, "eps": 0.05},
}  # fmt: skip
VALUES = (1.0, 0.9, 0.95, 0.91, 0.9, 0.8995, 0.7, 0.71,
          0.8, 0.7, 0.75, 0.74, 0.6, 0.61, 0.62, 0.6)  # fmt: skip


def momenta_of(make, steps=STEPS):
    """PyTorch's momenta of so many steps."""
    optimizer = torch.optim.SGD([torch.nn.Parameter(torch.zeros(1))], lr=BASE, momentum=0.9)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        scheduler = make(optimizer)
        optimizer.step()
        momenta = []
        for step in range(steps):
            momenta.append(float(optimizer.param_groups[0]["momentum"]))
            if step + 1 < steps:
                scheduler.step()
    return momenta


def falls_of(options):
    """PyTorch's rates after each value."""
    optimizer = torch.optim.SGD([torch.nn.Parameter(torch.zeros(1))], lr=BASE)
    scheduler = torch_schedules.ReduceLROnPlateau(optimizer, **options)
    rates = []
    for value in VALUES:
        scheduler.step(value)
        rates.append(optimizer.param_groups[0]["lr"])
    return rates


def print_plateaus():
    for text, options in PLATEAUS.items():
        print(f'    {{"{text}", {{{", ".join(map(repr, falls_of(options)))}}}}},')


def print_momenta():
    for text, make in MOMENTA.items():
        found = momenta_of(make)
        print(f'    {{"{text}", {{{", ".join(repr(found[step]) for step in SOME)}}}}},')


if __name__ == "__main__":
    if "--momenta" in sys.argv:
        print_momenta()
        sys.exit()
    if "--plateau" in sys.argv:
        print_plateaus()
        sys.exit()
    for text, make in SCHEDULES.items():
        found = rates_of(make)
        print(f'    {{"{text}", {{{", ".join(repr(found[step]) for step in SOME)}}}}},')
