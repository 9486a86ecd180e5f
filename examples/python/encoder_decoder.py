"""An encoder and a decoder learn to turn sequences around; two inputs by name."""

import penstock
import torch
from torch import nn

VALUES, LENGTH, WIDTH, START = 12, 8, 48, 0


class Reverser(nn.Module):
    def __init__(self):
        super().__init__()
        self.tokens, self.places = nn.Embedding(VALUES, WIDTH), nn.Embedding(LENGTH, WIDTH)
        self.body = nn.Transformer(
            WIDTH, 4, 2, 2, 2 * WIDTH, dropout=0.0, batch_first=True, norm_first=True
        )
        self.head = nn.Linear(WIDTH, VALUES)

    def embed(self, tokens):
        return self.tokens(tokens) + self.places(torch.arange(tokens.shape[1]))

    def forward(self, source, target):
        causal = nn.Transformer.generate_square_subsequent_mask(target.shape[1])
        x = self.body(self.embed(source), self.embed(target), tgt_mask=causal, tgt_is_causal=True)
        return self.head(x)


torch.manual_seed(1)
source = torch.randint(1, VALUES, (2048, LENGTH))
wanted = source.flip(1)
target = torch.cat([torch.full((2048, 1), START), wanted[:, :-1]], 1)  # what was said so far
trainer = penstock.Trainer(
    Reverser(), {"source": source[:4], "target": target[:4]}, strategy="1f1b-flush", workers=2,
    optimizer="Adam", lr=3e-3, batch_size=64,
)  # fmt: skip
history = trainer.fit({"source": source, "target": target, "labels": wanted}, epochs=4)
for epoch in history:
    print(f"epoch {epoch['epoch'] + 1}: loss {epoch['loss']:.3f}, {epoch['accuracy']:.1%} right")
assert history[-1]["loss"] < 0.8 * history[0]["loss"]
