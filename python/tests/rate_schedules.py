"""Schedules as text and as those of torch.optim.lr_scheduler, with PyTorch's rates.

python rate_schedules.py prints the table of penstock/train/rate_schedules_test.cpp.
"""

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


if __name__ == "__main__":
    for text, make in SCHEDULES.items():
        found = rates_of(make)
        print(f'    {{"{text}", {{{", ".join(repr(found[step]) for step in SOME)}}}}},')
