"""Models that people have: they import, train in 2 and 4 stages as uncut, bit for bit, the loss
falls, and the module takes its weights back. Reduced sizes; those of torchvision (0.28) and of
transformers (5) need these packages and are skipped without them.

test_models.py [-k NAME]
"""

import copy
import unittest
import warnings

import numpy as np
import torch
from torch import nn

import penstock

STEPS, BATCH, CLASSES, WORDS = 20, 8, 10, 50


# Two operators that torchvision declares at its import are missing where its compiled part is for
# another build of PyTorch; no model here needs them.
DECLARED = torch.library.Library("torchvision", "FRAGMENT")
for operator in ("nms", "qnms"):
    if not hasattr(torch.ops.torchvision, operator):
        DECLARED.define(f"{operator}(Tensor dets, Tensor scores, float iou) -> Tensor")


def vision():
    from torchvision import models

    return models


def images(size=64, channels=3):
    torch.manual_seed(1)
    return torch.randn(BATCH, channels, size, size), torch.randint(0, CLASSES, (BATCH,))


def tokens(length=12):
    torch.manual_seed(1)
    ids = torch.randint(3, WORDS, (BATCH, length))
    return ids, (ids * 7 + 3) % WORDS


def resnet18():
    models = vision()
    return models.ResNet(models.resnet.BasicBlock, [1, 1, 1, 1], CLASSES), images()


def resnet50():
    models = vision()
    block = models.resnet.Bottleneck
    return models.ResNet(block, [1, 1, 1, 1], CLASSES, width_per_group=16), images()


def vgg16_bn():
    models = vision()
    layers = [8, 8, "M", 16, 16, "M", 16, 16, 16, "M", 32, 32, 32, "M", 32, 32, 32, "M"]
    model = models.vgg.VGG(models.vgg.make_layers(layers, batch_norm=True), CLASSES)
    model.classifier = nn.Sequential(
        nn.Linear(32 * 49, 64), nn.ReLU(True), nn.Dropout(), nn.Linear(64, CLASSES)
    )
    return model, images()


def mobilenet_v3():
    return vision().mobilenet_v3_small(num_classes=CLASSES), images()


def efficientnet_b0():
    return vision().efficientnet_b0(num_classes=CLASSES), images()


def densenet121():
    models = vision()
    return models.DenseNet(8, (2, 2, 2, 2), 16, num_classes=CLASSES), images()


def inception_v3():
    model = vision().Inception3(CLASSES, aux_logits=False, init_weights=False)
    return model, images(80)


def convnext():
    models = vision()
    block = models.convnext.CNBlockConfig
    return models.ConvNeXt([block(16, 32, 2), block(32, None, 2)], num_classes=CLASSES), images()


def vit():
    model = vision().VisionTransformer(32, 8, 2, 2, 32, 64, dropout=0.1, num_classes=CLASSES)
    return model, images(32)


def swin():
    models = vision()
    model = models.SwinTransformer([4, 4], 16, [2, 2], [2, 4], [4, 4], num_classes=CLASSES)
    return model, images()


class UNet(nn.Module):
    def __init__(self):
        super().__init__()
        self.down = nn.ModuleList([self.block(1, 8), self.block(8, 16)])
        self.middle = self.block(16, 32)
        self.up = nn.ModuleList([self.block(32 + 16, 16), self.block(16 + 8, 8)])
        self.head = nn.Conv2d(8, 3, 1)

    @staticmethod
    def block(inputs, outputs):
        return nn.Sequential(nn.Conv2d(inputs, outputs, 3, padding=1), nn.BatchNorm2d(outputs),
                             nn.ReLU(True))  # fmt: skip

    def forward(self, x):
        kept = []
        for block in self.down:
            x = block(x)
            kept.append(x)
            x = nn.functional.max_pool2d(x, 2)
        x = self.middle(x)
        for block in self.up:
            x = nn.functional.interpolate(x, scale_factor=2)
            x = block(torch.cat([x, kept.pop()], 1))
        return self.head(x)


def unet():
    x, _ = images(16, 1)
    return UNet(), (x, x.expand(-1, 3, -1, -1) * 0.5), nn.MSELoss()


def transformers(kind, name, **sizes):
    import transformers as library

    return getattr(library, kind)(getattr(library, name)(**sizes))


DECODER = {"vocab_size": WORDS, "hidden_size": 32, "intermediate_size": 64, "num_hidden_layers": 2,
           "num_attention_heads": 4, "num_key_value_heads": 2, "head_dim": 8,
           "max_position_embeddings": 32, "pad_token_id": 0, "bos_token_id": 1, "eos_token_id": 2}


def own_loss(model):
    ids, labels = tokens()
    return model, {"input_ids": ids, "labels": labels}, "model"


def gpt2():
    return own_loss(transformers("GPT2LMHeadModel", "GPT2Config", vocab_size=WORDS, n_embd=32,
                                 n_layer=2, n_head=4, n_positions=32))  # fmt: skip


def llama():
    return own_loss(transformers("LlamaForCausalLM", "LlamaConfig", tie_word_embeddings=True,
                                 **DECODER))  # fmt: skip


def qwen3():
    return own_loss(transformers("Qwen3ForCausalLM", "Qwen3Config", **DECODER))


def gemma():
    return own_loss(transformers("GemmaForCausalLM", "GemmaConfig", **DECODER))


def bert():
    sizes = {name: value for name, value in DECODER.items()
             if name not in ("num_key_value_heads", "head_dim")}
    return own_loss(transformers("BertForMaskedLM", "BertConfig", **sizes))


def distilbert():
    return own_loss(transformers("DistilBertForMaskedLM", "DistilBertConfig", vocab_size=WORDS,
                                 dim=32, hidden_dim=64, n_layers=2, n_heads=4))  # fmt: skip


def t5():
    return own_loss(transformers("T5ForConditionalGeneration", "T5Config", vocab_size=WORDS,
                                 d_model=32, d_ff=64, d_kv=8, num_layers=2, num_heads=4,
                                 decoder_start_token_id=0))  # fmt: skip


def whisper():
    model = transformers("WhisperForConditionalGeneration", "WhisperConfig", vocab_size=WORDS,
                         d_model=32, encoder_layers=2, decoder_layers=2, encoder_attention_heads=4,
                         decoder_attention_heads=4, encoder_ffn_dim=64, decoder_ffn_dim=64,
                         num_mel_bins=8, max_source_positions=20, max_target_positions=20,
                         pad_token_id=0, bos_token_id=1, eos_token_id=2, decoder_start_token_id=1)
    _, labels = tokens()
    return model, {"input_features": torch.randn(BATCH, 8, 40), "labels": labels}, "model"


class Encoder(nn.Module):
    def __init__(self):
        super().__init__()
        self.embed = nn.Embedding(WORDS, 32)
        layer = nn.TransformerEncoderLayer(32, 4, 64, batch_first=True)
        self.body = nn.TransformerEncoder(layer, 2, enable_nested_tensor=False)
        self.head = nn.Linear(32, WORDS)

    def forward(self, ids):
        return self.head(self.body(self.embed(ids)))


def transformer_encoder():
    return Encoder(), tokens()


class Recurrent(nn.Module):
    def __init__(self):
        super().__init__()
        self.embed = nn.Embedding(WORDS, 32)
        self.body = nn.LSTM(32, 32, 2, batch_first=True, dropout=0.1)
        self.head = nn.Sequential(nn.Linear(32, 32), nn.Tanh(), nn.Linear(32, WORDS))

    def forward(self, ids):
        return self.head(self.body(self.embed(ids))[0])


def lstm():
    return Recurrent(), tokens()


class Block(nn.Module):
    """Causal attention and a perceptron, before both a norm."""

    def __init__(self, width, heads):
        super().__init__()
        self.heads = heads
        self.first, self.second = nn.LayerNorm(width), nn.LayerNorm(width)
        self.mix, self.out = nn.Linear(width, 3 * width, bias=False), nn.Linear(width, width)
        wide = 4 * width
        self.mlp = nn.Sequential(nn.Linear(width, wide), nn.GELU(), nn.Linear(wide, width))

    def forward(self, x):
        batch, length, width = x.shape
        parts = self.mix(self.first(x)).split(width, 2)
        q, k, v = (one.view(batch, length, self.heads, -1).transpose(1, 2) for one in parts)
        seen = nn.functional.scaled_dot_product_attention(q, k, v, is_causal=True, dropout_p=0.1)
        x = x + self.out(seen.transpose(1, 2).contiguous().view(batch, length, width))
        return x + self.mlp(self.second(x))


class SmallGpt(nn.Module):
    def __init__(self):
        super().__init__()
        self.words, self.places = nn.Embedding(WORDS, 32), nn.Embedding(32, 32)
        self.blocks = nn.ModuleList(Block(32, 4) for _ in range(2))
        self.norm, self.head = nn.LayerNorm(32), nn.Linear(32, WORDS, bias=False)
        self.head.weight = self.words.weight

    def forward(self, ids):
        x = self.words(ids) + self.places(torch.arange(ids.shape[1]))
        for block in self.blocks:
            x = block(x)
        return self.head(self.norm(x))


def small_gpt():
    return SmallGpt(), tokens()


VISION = [resnet18, resnet50, vgg16_bn, mobilenet_v3, efficientnet_b0, densenet121, inception_v3,
          convnext, vit, swin]  # fmt: skip
LIBRARY = [gpt2, llama, qwen3, gemma, bert, distilbert, t5, whisper]
OWN = [unet, transformer_encoder, lstm, small_gpt]


def pipeline(uncut, stages):
    """A plan of `stages` stages, each of as many layers, one worker each."""
    plan = copy.deepcopy(uncut.plan)
    one = plan["stages"][0]
    cuts = [len(uncut.layers) * k // stages for k in range(stages + 1)]
    plan["stages"] = [
        {**one, "layers": uncut.layers[cuts[k] : cuts[k + 1]], "first_worker": k}
        for k in range(stages)
    ]
    plan["links"] = [{"from": k, "to": k + 1, "bytes": 1} for k in range(stages - 1)]
    plan["cluster"]["levels"][0]["count"] = stages
    return {**plan, "strategy": "1f1b-flush", "config": "-".join("1" * stages), "depth": stages}


class Models(unittest.TestCase):
    def setUp(self):
        torch.set_num_threads(1)
        torch.manual_seed(1)
        warnings.simplefilter("ignore")

    def train(self, model, data, loss, plan=None):
        """The losses of STEPS steps and the trainer: uncut, or with `plan`."""
        inputs, targets = (data, None) if isinstance(data, dict) else data
        how = {"plan": plan} if plan else {"strategy": "serial", "workers": 1, "micro_batches": 4}
        trainer = penstock.Trainer(model, inputs, batch_size=BATCH, loss=loss, optimizer="Adam",
                                   lr=5e-3, progress=False, **how)  # fmt: skip
        return [trainer.step(inputs, targets)["loss"] for _ in range(STEPS)], trainer

    def trains(self, make):
        model, data, *loss = make()
        loss = loss[0] if loss else "cross-entropy"
        expected, uncut = self.train(model, data, loss)
        weights = uncut.state_dict()
        self.assertLess(np.mean(expected[-4:]), 0.95 * np.mean(expected[:4]))
        for stages in (2, 4):
            losses, trainer = self.train(model, data, loss, pipeline(uncut, stages))
            self.assertEqual(len(trainer.plan["stages"]), stages)
            self.assertEqual(losses, expected)
            for name, value in trainer.state_dict().items():
                self.assertTrue(torch.equal(value, weights[name]), name)
        model.load_state_dict(weights, strict=True)


def add_test(make, package):
    def test(self):
        if package:
            try:
                vision() if package == "torchvision" else __import__(package)
            except ImportError as error:
                self.skipTest(str(error))
        self.trains(make)

    setattr(Models, f"test_{make.__name__}", test)


for makers, needed in ((VISION, "torchvision"), (LIBRARY, "transformers"), (OWN, None)):
    for maker in makers:
        add_test(maker, needed)


if __name__ == "__main__":
    unittest.main()
