"""Fine-tunes a language model of Hugging Face on conversations, with LoRA adapters of PEFT, and
saves the adapters.

    pip install peft transformers
    python3 fine_tune.py MODEL_FOLDER ROWS.jsonl ADAPTER_FOLDER
    torchrun --nproc-per-node 2 fine_tune.py MODEL_FOLDER ROWS.jsonl ADAPTER_FOLDER

ROWS.jsonl has a conversation a line, {"messages": [{"role": "user", "content": "..."}, ...]}, or a
{"text": "..."}, or a {"prompt": "...", "answer": "..."}. What is learned of a conversation is its
answers. Without arguments it takes a small model of random weights, and sums.
"""

import json
import os
import sys
import tempfile
from pathlib import Path

import peft
import tokenizers
import torch
import transformers

import penstock

LENGTH, BATCH, EPOCHS = 128, 8, 3
TEMPLATE = (
    "{% for one in messages %}<|{{ one.role }}|>{{ one.content }}<|end|>{% endfor %}"
    "{% if add_generation_prompt %}<|assistant|>{% endif %}"
)


def made_up(folder):
    """A model, its tokenizer and rows, in the folder."""
    named = ["<|end|>", "<|user|>", "<|assistant|>"]
    tokenizer = tokenizers.Tokenizer(tokenizers.models.BPE())
    tokenizer.pre_tokenizer = tokenizers.pre_tokenizers.ByteLevel(add_prefix_space=False)
    tokenizer.train_from_iterator([], tokenizers.trainers.BpeTrainer(
        special_tokens=named, initial_alphabet=tokenizers.pre_tokenizers.ByteLevel.alphabet(),
        show_progress=False,
    ))  # fmt: skip
    tokenizer.save(str(folder / "tokenizer.json"))
    config = {"eos_token": "<|end|>", "chat_template": TEMPLATE}
    (folder / "tokenizer_config.json").write_text(json.dumps(config))
    torch.manual_seed(1)
    transformers.LlamaForCausalLM(transformers.LlamaConfig(
        vocab_size=tokenizer.get_vocab_size(), hidden_size=64, intermediate_size=128,
        num_hidden_layers=3, num_attention_heads=4, num_key_value_heads=2,
        max_position_embeddings=LENGTH,
    )).save_pretrained(folder)  # fmt: skip
    with open(folder / "rows.jsonl", "w") as rows:
        for a in range(10):
            for b in range(10):
                turns = [{"role": "user", "content": f"What is {a} and {b}?"},
                         {"role": "assistant", "content": f"It is {a + b}."}]  # fmt: skip
                rows.write(json.dumps({"messages": turns}) + "\n")
    return folder / "rows.jsonl"


def main():
    own = tempfile.TemporaryDirectory()
    model_folder, rows, adapter = sys.argv[1:] or (own.name, made_up(Path(own.name)), own.name)
    # Each rank writes the same tokens for itself; a large file is better written once before.
    tokens = Path(own.name) / "tokens"
    found = penstock.data.write(rows, model_folder, tokens)
    print(f"{found['documents']} documents, {found['tokens']} tokens, {found['learned']} learned")
    loader = penstock.data.Documents(tokens).packed(LENGTH, batch_size=BATCH)

    base = transformers.AutoModelForCausalLM.from_pretrained(model_folder)
    model = peft.get_peft_model(
        base, peft.LoraConfig(r=8, target_modules="all-linear", lora_dropout=0.05)
    )
    trainer = penstock.Trainer(
        model, loader.example(), workers=2, batch_size=BATCH, optimizer="AdamW", lr=0.01
    )
    losses = [one["loss"] for one in trainer.fit(loader, epochs=EPOCHS)]
    print("loss of each epoch:", [round(loss, 3) for loss in losses])
    assert losses[-1] < losses[0], "the adapters have learned nothing"

    # What is trained goes back into the module, which saves it as PEFT does.
    model.load_state_dict(trainer.state_dict(frozen=False), strict=False)
    if os.environ.get("RANK", "0") == "0":
        model.save_pretrained(adapter)
        print("adapters:", adapter, sorted(os.listdir(adapter)))


if __name__ == "__main__":
    main()
