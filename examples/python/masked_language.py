"""BERT-style: hidden tokens are guessed from those around them; others do not count."""

import penstock
import torch
from torch import nn

VALUES, LENGTH, WIDTH, HIDDEN = 32, 24, 48, 0  # the token 0 hides another


class Encoder(nn.Module):
    def __init__(self):
        super().__init__()
        self.tokens, self.places = nn.Embedding(VALUES, WIDTH), nn.Embedding(LENGTH, WIDTH)
        layer = nn.TransformerEncoderLayer(
            WIDTH, 4, 2 * WIDTH, dropout=0.0, activation="gelu", batch_first=True, norm_first=True
        )
        self.layers = nn.TransformerEncoder(layer, 2, enable_nested_tensor=False)
        self.head = nn.Linear(WIDTH, VALUES)

    def forward(self, input_ids, padding_mask):
        x = self.tokens(input_ids) + self.places(torch.arange(input_ids.shape[1]))
        return self.head(self.layers(x, src_key_padding_mask=padding_mask.bool()))


def batches(count, size=32):
    for _ in range(count):
        first = torch.randint(1, VALUES, (size, 1))
        tokens = (first + torch.arange(LENGTH)) % (VALUES - 1) + 1  # each is one more
        hidden = torch.rand(size, LENGTH) < 0.15
        yield {
            "input_ids": tokens.masked_fill(hidden, HIDDEN),
            "padding_mask": torch.zeros(size, LENGTH, dtype=torch.long),
            "labels": tokens.masked_fill(~hidden, -100),  # of the hidden ones only
        }


torch.manual_seed(1)
example = {k: v for k, v in next(batches(1, 4)).items() if k != "labels"}
trainer = penstock.Trainer(
    Encoder(), example, strategy="gpipe", workers=2, optimizer="Adam", lr=3e-3, batch_size=32
)
for _ in range(4):
    epoch = trainer.fit(batches(40))[0]
    print(f"loss {epoch['loss']:.3f}, {epoch['accuracy']:.1%} of the hidden tokens right")
assert epoch["loss"] < 2.0
