"""A model of one's own, with a skip connection over everything, dropout and a tied weight: any cut
gives the same weights, bit for bit."""

import penstock
import torch
from torch import nn


class Own(nn.Module):
    def __init__(self, width=32):
        super().__init__()
        self.into = nn.Linear(16, width)
        self.up = nn.Linear(width, width)
        self.middle = nn.Linear(width, width)
        self.down = nn.Linear(width, width)
        self.down.weight = self.up.weight  # one weight, used twice
        self.drop = nn.Dropout(0.2)
        self.out = nn.Linear(width, 4)

    def forward(self, x):
        start = torch.tanh(self.into(x))
        x = self.drop(torch.tanh(self.up(start)))
        x = self.drop(torch.tanh(self.middle(x)))
        x = torch.tanh(self.down(x)) + start  # the skip connection
        return self.out(x)


torch.manual_seed(1)
x = torch.randn(1024, 16)
y = (x @ torch.randn(16, 4)).argmax(1)
model = Own()
weights = []
for strategy, workers in [("serial", 1), ("1f1b-flush", 2), ("gpipe", 3), ("zb-h1", 2)]:
    trainer = penstock.Trainer(
        model, x[:4], strategy=strategy, workers=workers, micro_batches=4, lr=0.1, momentum=0.9
    )
    history = trainer.fit(x, y, epochs=3)
    weights.append(trainer.state_dict())
    stages = " | ".join(f"{len(stage['layers'])} layers" for stage in trainer.plan["stages"])
    print(f"{strategy:10} {stages:34} loss {history[0]['loss']:.4f} -> {history[-1]['loss']:.4f}")
for others in weights[1:]:
    assert all(torch.equal(weights[0][name], others[name]) for name in weights[0])
assert history[-1]["loss"] < history[0]["loss"]
print("the weights are equal, bit for bit")
