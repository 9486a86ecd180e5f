"""Fine-tunes a language model of Hugging Face on conversations, with LoRA adapters, and saves the
adapters and a merged model. Between epochs it shows what the model answers.

    python3 fine_tune.py MODEL_FOLDER ROWS.jsonl OUTPUT_FOLDER
    torchrun --nproc-per-node 2 fine_tune.py MODEL_FOLDER ROWS.jsonl OUTPUT_FOLDER

README.md has the formats of ROWS.jsonl, and the commands for two machines. Without arguments it
takes a small model of random weights, and sums.
"""

import json
import sys
import tempfile
from pathlib import Path

import tokenizers
import torch
import transformers

import penstock

LENGTH, BATCH, EPOCHS = 128, 8, 4
TEMPLATE = (
    "{% for one in messages %}<|{{ one.role }}|>{{ one.content }}<|end|>{% endfor %}"
    "{% if add_generation_prompt %}<|assistant|>{% endif %}"
)


def made_up(folder):
    """A model, its tokenizer and rows, in the folder."""
    named = ["<|end|>", "<|user|>", "<|assistant|>"]
    tokenizer = tokenizers.Tokenizer(tokenizers.models.BPE())
    tokenizer.pre_tokenizer = tokenizers.pre_tokenizers.ByteLevel(add_prefix_space=False)
    tokenizer.decoder = tokenizers.decoders.ByteLevel()
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


class Answers(penstock.Callback):
    """Shows what the model writes after each epoch, token by token through the pipeline."""

    every_rank = True  # the ranks predict together

    def __init__(self, tokenizer, prompt, end, most=24):
        self.tokenizer, self.prompt, self.end, self.most = tokenizer, prompt, end, most

    def on_epoch(self, trainer, epoch):
        ids = self.tokenizer.encode(self.prompt).ids
        first = len(ids)
        while len(ids) < min(first + self.most, LENGTH):
            row = torch.zeros(1, LENGTH, dtype=torch.int64)
            row[0, : len(ids)] = torch.tensor(ids)
            places = torch.arange(LENGTH)[None]
            logits = trainer.predict({"input_ids": row, "position_ids": places})
            ids.append(int(logits[0, len(ids) - 1].argmax()))
            if ids[-1] == self.end:
                break
        if trainer.rank == 0:
            said = repr(self.tokenizer.decode(ids[first:]))
            losses = f"loss {epoch['loss']:.3f}, held out {epoch['eval_loss']:.3f}"
            print(f"epoch {epoch['epoch'] + 1}: {losses}: {said}")


def main():
    own = tempfile.TemporaryDirectory()
    model_folder, rows, output = sys.argv[1:] or (
        own.name, made_up(Path(own.name)), Path(own.name) / "output")  # fmt: skip
    # Each rank writes the same tokens for itself; a large file is better written once before.
    output = Path(output)
    if (output / "merged").exists():
        print(f"{output / 'merged'} is there already: nothing is left to do")
        return
    rows = [json.loads(line) for line in Path(rows).read_text().splitlines() if line.strip()]
    parts = {"learned": [row for k, row in enumerate(rows) if k % 10], "held out": rows[::10]}
    loaders = []
    for name, part in parts.items():
        penstock.data.write(part, model_folder, Path(own.name) / name)
        documents = penstock.data.Documents(Path(own.name) / name)
        columns = ["input_ids", "position_ids", "targets"]
        loaders.append(documents.packed(LENGTH, batch_size=BATCH, columns=columns))
    loader, held_out = loaders[0], list(loaders[1])
    model = transformers.AutoModelForCausalLM.from_pretrained(model_folder)
    model.config.use_cache = False
    example = {name: one for name, one in loader.example().items() if name != "targets"}
    trainer = penstock.Trainer(
        model, example, workers=2, batch_size=BATCH, lora=8, optimizer="AdamW", lr=0.01,
        lr_schedule="cosine", lr_warmup=5, total_steps=EPOCHS * len(loader),
    )  # fmt: skip
    trainer.resume(output / "run")  # where a run was interrupted
    tokenizer = tokenizers.Tokenizer.from_file(str(Path(model_folder) / "tokenizer.json"))
    prompt = "<|user|>What is 2 and 3?<|end|><|assistant|>"
    history = trainer.fit(
        loader, epochs=EPOCHS - trainer.epochs, eval_dataset=held_out, checkpoint=output / "run",
        save_every=100, keep_best=True, early_stopping=3, log_dir=output / "log",
        callbacks=Answers(tokenizer, prompt, found_end(model_folder, tokenizer)),
    )  # fmt: skip
    trainer.resume(output / "run" / "best")
    trainer.save_merged(output / "merged", base=model_folder)
    if trainer.rank == 0:
        print("adapters of the best evaluation:", (output / "run" / "best").resolve().name)
        losses = [one["loss"] for one in history]
        assert len(losses) < 2 or losses[-1] < losses[0], "the adapters have learned nothing"
        merged = transformers.AutoModelForCausalLM.from_pretrained(output / "merged")
        print("merged:", sum(one.numel() for one in merged.parameters()), "parameters")


def found_end(folder, tokenizer):
    """The token that ends an answer."""
    config = json.loads((Path(folder) / "tokenizer_config.json").read_text())
    end = config["eos_token"]
    return tokenizer.token_to_id(end if isinstance(end, str) else end["content"])


if __name__ == "__main__":
    main()
