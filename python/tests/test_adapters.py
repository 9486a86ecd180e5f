"""Adapters of PEFT on a small Llama: losses are PyTorch's, in one stage and in two, and what is
trained goes back to PEFT. Skipped without peft and transformers."""

import copy
import importlib.util
import tempfile
import unittest

import torch

import penstock

WORDS, PLACES, STEPS = 120, 16, 3
#: Of losses: adapters are added in another order of sums.
TOLERANCE = 2e-6


def base():
    import transformers

    torch.manual_seed(0)
    return transformers.LlamaForCausalLM(transformers.LlamaConfig(
        hidden_size=32, intermediate_size=48, num_hidden_layers=3, num_attention_heads=4,
        num_key_value_heads=2, vocab_size=WORDS, max_position_embeddings=PLACES,
    ))  # fmt: skip


def configs():
    import peft

    queries = {"r": 4, "target_modules": ["q_proj", "v_proj"], "lora_dropout": 0.0}
    return {
        "LoRA": peft.LoraConfig(**queries),
        "LoRA of every product": peft.LoraConfig(r=4, target_modules="all-linear"),
        "rsLoRA": peft.LoraConfig(use_rslora=True, **queries),
        "DoRA": peft.LoraConfig(use_dora=True, **queries),
        "the last layer alone": peft.LoraConfig(layers_to_transform=[2], **queries),
        "the head, too": peft.LoraConfig(modules_to_save=["lm_head"], **queries),
        "IA3": peft.IA3Config(target_modules=["k_proj", "v_proj", "down_proj"],
                              feedforward_modules=["down_proj"]),
    }  # fmt: skip


@unittest.skipUnless(
    importlib.util.find_spec("peft") and importlib.util.find_spec("transformers"),
    "needs peft and transformers",
)
class AdaptersTest(unittest.TestCase):
    def setUp(self):
        torch.manual_seed(5)
        ids = torch.randint(WORDS, (8, PLACES))
        self.batch = {"input_ids": ids, "labels": ids}

    def by_pytorch(self, model):
        """The loss of each step, by a plain loop. The model is trained."""
        trained = [weight for weight in model.parameters() if weight.requires_grad]
        optimizer = torch.optim.SGD(trained, lr=0.1)
        losses = []
        for _ in range(STEPS):
            optimizer.zero_grad()
            loss = model(**self.batch, use_cache=False).loss
            loss.backward()
            optimizer.step()
            losses.append(loss.item())
        return losses

    def trainer(self, model, **options):
        return penstock.Trainer(model, self.batch, batch_size=8, optimizer="SGD", lr=0.1,
                                progress=False, **options)  # fmt: skip

    def test_losses_are_those_of_pytorch(self):
        import peft

        for name, config in configs().items():
            model = peft.get_peft_model(base(), config)
            with torch.no_grad():  # B begins with zeros, from which A learns nothing at first
                for key, weight in model.named_parameters():
                    if "lora_B" in key:
                        weight.normal_(std=0.1)
            expected = self.by_pytorch(copy.deepcopy(model))
            for options in ({"strategy": "serial", "workers": 1},
                            {"strategy": "1f1b-flush", "workers": 2, "micro_batches": 4}):
                with self.subTest(name, **options):
                    trainer = self.trainer(model, **options)
                    losses = [trainer.step(self.batch)["loss"] for _ in range(STEPS)]
                    for found, wanted in zip(losses, expected):
                        self.assertAlmostEqual(found, wanted, delta=TOLERANCE)
                    trained = {key for key, w in model.named_parameters() if w.requires_grad}
                    self.assertEqual(trainer.state_dict(frozen=False).keys(), trained)

    def test_peft_loads_what_was_trained(self):
        import peft

        model = peft.get_peft_model(base(), configs()["LoRA"])
        trainer = self.trainer(model, strategy="1f1b-flush", workers=2)
        trainer.step(self.batch)
        model.load_state_dict(trainer.state_dict(frozen=False), strict=False)
        with tempfile.TemporaryDirectory() as folder:
            model.save_pretrained(folder)
            again = peft.PeftModel.from_pretrained(base(), folder)
        with torch.no_grad():
            loss = again(**self.batch, use_cache=False).loss.item()
        self.assertAlmostEqual(trainer.step(self.batch)["loss"], loss, delta=TOLERANCE)


if __name__ == "__main__":
    unittest.main()
