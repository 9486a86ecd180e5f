"""A small GPT learns to write like a text, byte by byte; 1F1B over three stages."""

from pathlib import Path

import penstock
import torch
import torch.nn.functional as F
from torch import nn
from torch.optim.lr_scheduler import OneCycleLR

LENGTH, WIDTH, HEADS = 64, 64, 4


class Block(nn.Module):
    def __init__(self):
        super().__init__()
        self.norm1, self.norm2 = nn.LayerNorm(WIDTH), nn.LayerNorm(WIDTH)
        self.qkv, self.out = nn.Linear(WIDTH, 3 * WIDTH), nn.Linear(WIDTH, WIDTH)
        self.up, self.down = nn.Linear(WIDTH, 4 * WIDTH), nn.Linear(4 * WIDTH, WIDTH)

    def forward(self, x):
        q, k, v = self.qkv(self.norm1(x)).unflatten(-1, (3, HEADS, -1)).permute(2, 0, 3, 1, 4)
        y = F.scaled_dot_product_attention(q, k, v, is_causal=True)
        x = x + self.out(y.transpose(1, 2).flatten(2))
        return x + self.down(F.gelu(self.up(self.norm2(x))))


class Gpt(nn.Module):
    def __init__(self, blocks=3):
        super().__init__()
        self.bytes, self.places = nn.Embedding(256, WIDTH), nn.Embedding(LENGTH, WIDTH)
        self.blocks = nn.ModuleList(Block() for _ in range(blocks))
        self.norm, self.head = nn.LayerNorm(WIDTH), nn.Linear(WIDTH, 256)

    def forward(self, text):
        x = self.bytes(text) + self.places(torch.arange(text.shape[1]))
        for block in self.blocks:
            x = block(x)
        return self.head(self.norm(x))


torch.manual_seed(1)
text = torch.tensor(list(Path(__file__).read_bytes()) * 8)
starts = torch.arange(0, len(text) - LENGTH - 1, LENGTH // 2)
windows = torch.stack([text[i : i + LENGTH + 1] for i in starts.tolist()])
gpt, epochs, batch = Gpt(), 3, 32
matrices = [one for one in gpt.parameters() if one.dim() > 1]
others = [one for one in gpt.parameters() if one.dim() < 2]
optimizer = torch.optim.AdamW([{"params": matrices}, {"params": others, "weight_decay": 0.0}])
steps = epochs * -(-len(windows) // batch)
trainer = penstock.Trainer(
    gpt, windows[:4, :-1], strategy="1f1b-flush", workers=3, batch_size=batch, clip_norm=1.0,
    optimizer=optimizer, lr_schedule=lambda o: OneCycleLR(o, 6e-3, steps, cycle_momentum=False),
)  # fmt: skip
history = trainer.fit(windows[:, :-1], windows[:, 1:], epochs=epochs)
for epoch in history:
    print(f"epoch {epoch['epoch'] + 1}: loss {epoch['loss']:.3f}, {epoch['accuracy']:.1%} right")
assert history[-1]["loss"] < 0.8 * history[0]["loss"]
