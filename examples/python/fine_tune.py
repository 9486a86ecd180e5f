"""Fine-tunes a language model of Hugging Face with LoRA adapters of PEFT, and saves the adapters.

    pip install peft transformers
    python3 fine_tune.py MODEL_FOLDER TEXT_FILE ADAPTER_FOLDER
    torchrun --nproc-per-node 2 fine_tune.py MODEL_FOLDER TEXT_FILE ADAPTER_FOLDER

Without arguments it takes a small model of random weights and its own text, byte by byte.
"""

import os
import sys
import tempfile
from pathlib import Path

import peft
import torch
import transformers

import penstock

LENGTH, BATCH = 64, 8


def base_and_tokens(folder, text):
    """The model without adapters, and rows of LENGTH tokens."""
    if folder:
        tokens = transformers.AutoTokenizer.from_pretrained(folder)(text)["input_ids"]
        base = transformers.AutoModelForCausalLM.from_pretrained(folder)
    else:
        torch.manual_seed(1)
        tokens = list(text.encode())
        base = transformers.LlamaForCausalLM(transformers.LlamaConfig(
            vocab_size=256, hidden_size=64, intermediate_size=128, num_hidden_layers=3,
            num_attention_heads=4, num_key_value_heads=2, max_position_embeddings=LENGTH,
        ))  # fmt: skip
    rows = len(tokens) // LENGTH
    return base, torch.tensor(tokens[: rows * LENGTH]).view(rows, LENGTH)


def main():
    folder, text, adapter = sys.argv[1:] or (None, __file__, tempfile.mkdtemp())
    base, rows = base_and_tokens(folder, Path(text).read_text())
    model = peft.get_peft_model(
        base, peft.LoraConfig(r=8, target_modules="all-linear", lora_dropout=0.05)
    )
    batches = [{"input_ids": part, "labels": part} for part in rows.split(BATCH)]
    trainer = penstock.Trainer(
        model, {name: value[:2] for name, value in batches[0].items()}, workers=2,
        batch_size=BATCH, optimizer="AdamW", lr=0.01,
    )  # fmt: skip
    losses = [trainer.fit(batches)[0]["loss"] for _ in range(4)]
    print("loss of each epoch:", [round(loss, 3) for loss in losses])
    assert losses[-1] < losses[0], "the adapters have learned nothing"

    # What is trained goes back into the module, which saves it as PEFT does.
    model.load_state_dict(trainer.state_dict(frozen=False), strict=False)
    if os.environ.get("RANK", "0") == "0":
        model.save_pretrained(adapter)
        print("adapters:", adapter, sorted(os.listdir(adapter)))


if __name__ == "__main__":
    main()
