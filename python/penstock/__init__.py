"""Trains PyTorch models through pipelines of workers.

>>> import penstock, torch
>>> model = torch.nn.Sequential(torch.nn.Linear(8, 16), torch.nn.ReLU(), torch.nn.Linear(16, 3))
>>> trainer = penstock.Trainer(model, torch.randn(4, 8), workers=2, lr=0.1, progress=False)
>>> x = torch.randn(64, 8)
>>> history = trainer.fit(x, x[:, :3].argmax(1), epochs=5, batch_size=16)
>>> history[-1]["loss"] < history[0]["loss"]
True
>>> model.load_state_dict(trainer.state_dict(), strict=True)
<All keys matched successfully>
"""

import importlib
from typing import Any

from penstock._errors import PenstockError
from penstock._export import export
from penstock._tool import plan, profile, report, schedule, simulate, verify
from penstock._trainer import Trainer
from penstock._weights import empty_weights

__all__ = [
    "PenstockError",
    "Trainer",
    "empty_weights",
    "export",
    "plan",
    "profile",
    "report",
    "schedule",
    "simulate",
    "verify",
]
__version__ = "0.1.0"


def __getattr__(name: str) -> Any:
    """Modules that most programs do not need are imported when they are named."""
    if name in ("data", "pytorch", "text"):
        return importlib.import_module(f"penstock.{name}")
    raise AttributeError(f"module 'penstock' has no attribute {name!r}")
