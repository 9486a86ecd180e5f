"""Rows as documents of tokens, and batches of them; needs the package tokenizers for most of it."""

import json
import shutil
import subprocess
import sys
import tempfile
import unittest
from pathlib import Path
from unittest import mock

import numpy as np
import torch

from penstock import PenstockError
from penstock.data import Documents, Tokens, main, write

try:
    import tokenizers
except ImportError:
    tokenizers = None
try:
    import datasets
except ImportError:
    datasets = None

#: As SmolLM2's: a system turn of its own, and no mark of answers.
TEMPLATE = (
    "{% for message in messages %}{% if loop.first and messages[0]['role'] != 'system' %}"
    "{{ '<|im_start|>system\nYou help.<|im_end|>\n' }}{% endif %}"
    "{{'<|im_start|>' + message['role'] + '\n' + message['content'] + '<|im_end|>' + '\n'}}"
    "{% endfor %}{% if add_generation_prompt %}{{ '<|im_start|>assistant\n' }}{% endif %}"
)
CHAT = [
    {"role": "user", "content": "Hi there"},
    {"role": "assistant", "content": "Hello."},
    {"role": "user", "content": "And now? <|im_end|>"},
    {"role": "assistant", "content": " Größe 10.\n"},
]


def tokenizer_folder(folder, template=TEMPLATE):
    """A byte-level vocabulary that knows a few pairs."""
    folder.mkdir(exist_ok=True)
    made = tokenizers.Tokenizer(tokenizers.models.BPE())
    made.pre_tokenizer = tokenizers.pre_tokenizers.ByteLevel(add_prefix_space=False)
    made.decoder = tokenizers.decoders.ByteLevel()
    trainer = tokenizers.trainers.BpeTrainer(
        vocab_size=280, special_tokens=["<|im_start|>", "<|im_end|>"],
        initial_alphabet=tokenizers.pre_tokenizers.ByteLevel.alphabet(), show_progress=False,
    )  # fmt: skip
    made.train_from_iterator(["the cat sees the dog", "You help Hello"] * 9, trainer)
    made.enable_truncation(4)  # which must not cut documents off
    made.save(str(folder / "tokenizer.json"))
    config = {"eos_token": {"content": "<|im_end|>"}, "pad_token": "<|im_end|>"}
    if template is not None:
        config["chat_template"] = template
    (folder / "tokenizer_config.json").write_text(json.dumps(config))
    return made


class Folder(unittest.TestCase):
    def setUp(self):
        torch.set_num_threads(1)
        folder = tempfile.TemporaryDirectory()
        self.addCleanup(folder.cleanup)
        self.folder = Path(folder.name)

    def lines(self, *lines, name="rows.jsonl"):
        path = self.folder / name
        text = "\n".join(one if isinstance(one, str) else json.dumps(one) for one in lines)
        path.write_text(text + "\n", encoding="utf-8")
        return path

    def documents(self, lengths, vocabulary=40, learned=None):
        """A folder as `write` makes it, of random tokens."""
        random = np.random.default_rng(3)
        folder = self.folder / "made"
        folder.mkdir(exist_ok=True)
        rows = []
        for k, own in enumerate((lengths[: len(lengths) // 2], lengths[len(lengths) // 2 :])):
            tokens = random.integers(2, vocabulary, sum(own)).astype("<u2")
            (folder / f"{k:05}.bin").write_bytes(tokens.tobytes())
            marks = random.integers(0, 4, sum(own)) > 0 if learned is None else learned
            begins = np.cumsum([0, *own]).astype("<u8")
            marks = np.broadcast_to(marks, sum(own)).astype(np.uint8)
            marks[begins[1:].astype(int) - 1] = 1
            marks[begins[:-1].astype(int)] = 0
            (folder / f"{k:05}.learned").write_bytes(marks.tobytes())
            (folder / f"{k:05}.begins").write_bytes(begins.tobytes())
            rows.append({"name": f"{k:05}", "documents": len(own), "tokens": int(sum(own))})
        (folder / "manifest.json").write_text(json.dumps({
            "format": "penstock-documents", "version": 1, "shards": rows,
            "tokenizer": {"size": vocabulary, "end": 1, "pad": 1},
        }))  # fmt: skip
        return Documents(folder)


@unittest.skipIf(tokenizers is None, "the package tokenizers is not installed")
class Writing(Folder):
    def setUp(self):
        super().setUp()
        self.tokenizer = tokenizer_folder(self.folder / "model")
        self.tokenizer.no_truncation()

    def write(self, rows, **options):
        manifest = write(rows, self.folder / "model", self.folder / "out", **options)
        return manifest, Documents(self.folder / "out")

    def texts(self, documents):
        """Of each document the whole text, and what is learned."""
        found = []
        for document in range(len(documents)):
            ids, learned = documents[document]
            found.append(tuple(
                self.tokenizer.decode(one.tolist(), skip_special_tokens=False)
                for one in (ids, ids[learned])
            ))  # fmt: skip
        return found

    def test_answers_are_learned_with_what_ends_them(self):
        path = self.lines(
            {"text": "the cat"}, "", {"prompt": "the ", "answer": "dog"},
            {"messages": CHAT, "source": "made up"},
        )  # fmt: skip
        manifest, documents = self.write(path)
        chat = "<|im_start|>system\nYou help.<|im_end|>\n" + "".join(
            f"<|im_start|>{one['role']}\n{one['content']}<|im_end|>\n" for one in CHAT
        )
        text, answer, talk = self.texts(documents)
        first = self.tokenizer.encode("the cat").tokens[0]
        self.assertEqual(text, ("the cat<|im_end|>", "the cat<|im_end|>".removeprefix(first)))
        # The space before "dog" is in the prompt and in no token of the answer alone.
        self.assertEqual(answer[0], "the dog<|im_end|>")
        self.assertIn(answer[1], ("dog<|im_end|>", "og<|im_end|>", "<|im_end|>"))
        self.assertEqual(talk, (chat, "Hello.<|im_end|> Größe 10.\n<|im_end|>"))
        ids = self.tokenizer.encode(chat, add_special_tokens=False).ids
        self.assertEqual(documents[2][0].tolist(), ids)
        self.assertEqual((manifest["documents"], manifest["tokens"]), (3, sum(documents.lengths)))

    def test_prompts_may_be_written_by_the_template(self):
        row = {"prompt": "Hi", "completion": "Hello."}
        _, documents = self.write(self.lines(row), chat=True)
        ((text, learned),) = self.texts(documents)
        self.assertEqual(text.count("<|im_start|>"), 3)
        self.assertEqual(learned, "Hello.<|im_end|>")

    def test_a_template_that_marks_answers_is_taken_as_well(self):
        marked = TEMPLATE.replace(
            "{{'<|im_start|>' + message['role']",
            "{% generation %}{% endgeneration %}{{'<|im_start|>' + message['role']",
        )
        (self.folder / "model" / "chat_template.jinja").write_text(marked)
        _, documents = self.write(self.lines({"messages": CHAT}))
        self.assertEqual(self.texts(documents)[0][1], "Hello.<|im_end|> Größe 10.\n<|im_end|>")

    def test_shards_hold_what_one_file_holds(self):
        rows = [{"text": "the cat " * k} for k in range(1, 9)]
        manifest, whole = self.write(rows)
        before = [whole[k][0].tolist() for k in range(len(whole))]
        parts, documents = self.write(rows, shard_tokens=20)
        self.assertEqual(len(manifest["shards"]), 1)
        self.assertGreater(len(parts["shards"]), 2)
        self.assertEqual([documents[k][0].tolist() for k in range(len(documents))], before)
        self.assertEqual(parts["learned"], manifest["learned"])

    def test_damage_is_found(self):
        _, documents = self.write([{"text": "the cat " * k} for k in range(1, 9)], shard_tokens=9)
        documents.check()
        for name in ("00000.bin", "00001.learned"):
            path = documents.folder / name
            content = path.read_bytes()
            path.write_bytes(bytes([content[0] ^ 1, *content[1:]]))
            with self.assertRaisesRegex(PenstockError, f"{name[:5]}: the files are damaged"):
                Documents(documents.folder)
            with mock.patch("penstock._documents._SUMMED", 0):
                large = Documents(documents.folder)
            with self.assertRaisesRegex(PenstockError, f"{name[:5]}: the files are damaged"):
                large.check()
            path.write_bytes(content)

    def test_numbers_of_tokens_may_have_gaps(self):
        vocabulary = {"<|im_end|>": 0, "cat": 70_000, "dog": 3}
        made = tokenizers.Tokenizer(tokenizers.models.WordLevel(vocabulary, unk_token="dog"))
        made.pre_tokenizer = tokenizers.pre_tokenizers.Whitespace()
        made.save(str(self.folder / "model" / "tokenizer.json"))
        manifest, documents = self.write([{"text": "dog cat"}])
        self.assertEqual(documents[0][0].tolist(), [3, 70_000, 0])
        self.assertEqual(manifest["tokenizer"]["size"], 70_001)
        whole = Tokens(documents.folder / "00000.bin")  # with llm.c's header
        self.assertEqual(len(whole), 3)
        path = self.folder / "short.bin"
        path.write_bytes((documents.folder / "00000.bin").read_bytes()[:-4])
        with self.assertRaisesRegex(PenstockError, "short.bin: expected the 3 .*header.* found 2"):
            Tokens(path)

    def test_what_has_nothing_to_learn_is_counted(self):
        rows = [{"text": ""}, {"messages": CHAT[:1]}, {"text": "the cat"}]
        manifest, documents = self.write(rows)
        self.assertEqual((manifest["left_out"], len(documents)), (2, 1))
        with self.assertRaisesRegex(PenstockError, "none of the 2 documents has anything to learn"):
            self.write(rows[:2])

    def test_a_broken_row_is_refused_with_its_line_and_leaves_nothing(self):
        good = json.dumps({"text": "the cat"})
        for line, why in {
            "{": "rows.jsonl:2: expected one object of JSON a line: .* at character 2",
            '{"text": "a"} {"text": "b"}': "rows.jsonl:2: .*Extra data at character 15",
            "[1]": "rows.jsonl:2: expected an object, found a list",
            '{"text": NaN}': "rows.jsonl:2: .*NaN is no number",
            "[" * 100_000: "rows.jsonl:2: expected one object of JSON",
            '{"text": 3}': "rows.jsonl:2: 'text': expected a text, found a number",
            '{"text": "\\ud800"}': r"rows.jsonl:2: 'text' has half of a pair .*\\ud800",
            '{"Text": "a"}': "rows.jsonl:2: expected 'text', .*found 'Text'",
            '{"text": "a", "prompt": "b"}': "rows.jsonl:2: .*found 'text' and 'prompt'",
            '{"prompt": "b"}': "rows.jsonl:2: 'prompt': expected one of .*found none of them",
            '{"prompt": "b", "answer": "", "output": ""}': "both 'answer' and 'output'",
            '{"messages": []}': "rows.jsonl:2: 'messages': .*found an empty list",
            '{"messages": "Hi"}': "rows.jsonl:2: 'messages': .*found a text",
            '{"messages": ["Hi"]}': r"rows.jsonl:2: 'messages\[0\]': expected an object",
            '{"messages": [{"role": "user"}]}': r"jsonl:2: 'messages\[0\]' has no 'content'",
            '{"messages": [{"role": "user", "content": ["a"]}]}': "content': .*found a list",
        }.items():
            with self.subTest(line[:40]):
                with self.assertRaisesRegex(PenstockError, why):
                    self.write(self.lines(good, line))
                self.assertEqual(list((self.folder / "out").iterdir()), [])
        path = self.folder / "rows.jsonl"
        path.write_bytes(b'{"text": "a"}\n{"text": "\xff"}\n')
        with self.assertRaisesRegex(PenstockError, "rows.jsonl:2: .*UTF-8, found the byte 0xff at"):
            self.write(path)
        path.write_bytes(b"\n\n")
        with self.assertRaisesRegex(PenstockError, "rows.jsonl: .*found an empty file"):
            self.write(path)
        with self.assertRaisesRegex(PenstockError, "cannot read .*missing.jsonl"):
            self.write(self.folder / "missing.jsonl")
        with self.assertRaisesRegex(PenstockError, "the data: row 2: .*a number"):
            self.write([{"text": "a"}, {"text": 3}])

    def test_a_template_that_is_none_is_refused(self):
        row = self.lines({"text": "the cat"}, {"messages": CHAT})
        for template, why in {
            "{% for message in messages %}": "model.tokenizer_config.json: expected a chat "
            r"template \(Jinja\), found in its line 1",
            "You are helpful.": r"rows.jsonl:2: .*leaves out what messages\[0\] says",
            "{{ messages[0].name.first }}": "jsonl:2: .*refuses the conversation: .*no attribute",
            "{{ raise_exception('no system') }}": "refuses the conversation: no system",
            "{{ messages.__class__.__mro__ }}": "rows.jsonl:2: .*unsafe",
            "{{ 'a' * 10000000000 }}": "rows.jsonl:2: .*multiplies texts",
            "{{ 9 ** 99999999 }}": "rows.jsonl:2: .*multiplies texts or numbers",
            "{{ lipsum() }}": "rows.jsonl:2: .*'lipsum' is undefined",
            # It says something else of a turn that is not the last.
            "{% for m in messages %}{{ m.content if loop.last else m.content | upper }}"
            "{{ m.content }}{% endfor %}": "otherwise than the whole",
        }.items():
            with self.subTest(template), self.assertRaisesRegex(PenstockError, why):
                tokenizer_folder(self.folder / "model", template)
                self.write(row)
        names = [{**CHAT[0], "name": "\ud800"}, CHAT[1]]  # no key that is looked at elsewhere
        tokenizer_folder(self.folder / "model", "{{ messages[0].name }}" + TEMPLATE)
        with self.assertRaisesRegex(PenstockError, r"rows.jsonl:1: what .*writes has half.*ud800"):
            self.write(self.lines({"messages": names}))
        row = self.lines({"text": "the cat"}, {"messages": CHAT})
        tokenizer_folder(self.folder / "model", None)
        with self.assertRaisesRegex(PenstockError, "rows.jsonl:2: .*need a chat template"):
            self.write(row)
        (self.folder / "own.jinja").write_text(TEMPLATE)
        self.write(row, template=self.folder / "own.jinja")

    def test_what_a_template_makes_longer_is_bounded(self):
        row = {"messages": CHAT[:2]}
        with mock.patch("penstock._chat._MOST_PART", 50):
            for made in (
                "'ab' * {}", "{} * [0]", "('ab' | list * {})", "'a'.ljust({})",
                "'a'.rjust({}, '-')", "'a'.center({})", "'a'.zfill({})", "'a\t'.expandtabs({})",
                "'a' | center({})", "['a'] | map('center', {}) | list", "'a\na' | indent({})",
                "[1] | batch({}, 0) | list",
                "'%{}d' % 7", "'%-0{}d' % 7", "'%.{}f' % 7", "'%(a){}d' % {{'a': 7}}",
                "'%{}d' | format(7)", "'{{:{}}}'.format(7)", "'{{:.{}f}}'.format(7)",
                "'{{a:{}}}'.format_map({{'a': 7}})", "'a' | attr('ljust')({})",
                "'a'.encode().ljust({})",
            ):  # fmt: skip
                for times in (9, 77):
                    template = f"{{% set made = {made.format(times)} %}}" + TEMPLATE
                    tokenizer_folder(self.folder / "model", template)
                    with self.subTest(made, times=times):
                        if times == 9:
                            self.write([row])
                            continue
                        with self.assertRaisesRegex(PenstockError, "row 1.*multiplies .* wider"):
                            self.write([row])
            for made in ("'%*d' % (9, 1)", "'%.*f' % (9, 1)", "'{:{}}'.format(7, 9)",
                         "'{{{:{}}'.format(7, 9)", "'%*d' | format(9, 1)"):  # fmt: skip
                tokenizer_folder(self.folder / "model", f"{{% set made = {made} %}}" + TEMPLATE)
                with self.subTest(made), self.assertRaisesRegex(PenstockError, "widths as numbers"):
                    self.write([row])
            tokenizer_folder(self.folder / "model", "{{ [1] | tojson(indent=1) }}" + TEMPLATE)
            with self.assertRaisesRegex(PenstockError, "row 1.*multiplies .* wider"):
                self.write([row])
            tokenizer_folder(self.folder / "model", "{% set made = '{{\"{}\": %}}'.format(7) ~ "
                             "'50%% of %s' % 'it' ~ 7 % 4 ~ 7 * 8 %}" + TEMPLATE)  # fmt: skip
            self.write([row])

    def test_files_of_others_stay(self):
        (self.folder / "out").mkdir()
        self.lines("mine", name="out/notes")
        with self.assertRaisesRegex(PenstockError, "holds other files than documents"):
            self.write([{"text": "the cat"}])
        self.assertTrue((self.folder / "out" / "notes").exists())

    def test_a_run_that_was_killed_does_not_lock_its_folder(self):
        killed = self.folder / "killed"

        def rows():
            for _ in range(3):
                yield {"text": "the cat"}
            shutil.copytree(self.folder / "out", killed)  # as it is left

        with mock.patch("penstock.data._CHUNK", 1):
            self.write(rows(), shard_tokens=1)
        self.assertTrue((killed / "00000.bin").exists() and not (killed / "manifest.json").exists())
        (killed / "notes").touch()
        with self.assertRaisesRegex(PenstockError, "holds other files than documents"):
            write([{"text": "a"}], self.folder / "model", killed)
        (killed / "notes").unlink()
        write([{"text": "the cat"}], self.folder / "model", killed)
        names = sorted(path.name for path in killed.iterdir())
        self.assertEqual(names, ["00000.begins", "00000.bin", "00000.learned", "manifest.json"])
        (killed / "manifest.json").unlink()  # tokens of somebody else
        with self.assertRaisesRegex(PenstockError, "holds other files than documents"):
            write([{"text": "a"}], self.folder / "model", killed)

    def test_the_command(self):
        path = self.lines({"text": "the cat"}, {"text": ""})
        arguments = [str(path), "--tokenizer", str(self.folder / "model"), "-o",
                     str(self.folder / "out")]  # fmt: skip
        with mock.patch("builtins.print") as printed:
            self.assertEqual(main(arguments), 0)
            self.assertEqual(main([*arguments, "--end", "[STOP]"]), 2)
        said = [str(call.args[0]) for call in printed.call_args_list]
        self.assertRegex(said[0], "out: 1 documents of [0-9]+ tokens.*\nleft out: 1 documents")
        self.assertRegex(said[1], r"penstock.data: .*no token '\[STOP\]'")

    @unittest.skipIf(datasets is None, "the package datasets is not installed")
    def test_tables_are_as_lines(self):
        rows = [{"messages": CHAT}, {"messages": CHAT[:2]}]
        wanted, _ = self.write(self.lines(*rows))
        table = datasets.Dataset.from_list(rows)
        table.to_parquet(self.folder / "tables" / "rows.parquet")
        table.save_to_disk(self.folder / "disk")
        for source in (table, self.folder / "tables" / "rows.parquet", self.folder / "tables",
                       self.folder / "disk"):  # fmt: skip
            self.assertEqual(self.write(source)[0]["shards"], wanted["shards"])
        (self.folder / "bad.parquet").write_text("no table")
        with self.assertRaisesRegex(PenstockError, "bad.parquet: the package datasets cannot"):
            self.write(self.folder / "bad.parquet")

    def test_tables_need_their_package(self):
        with mock.patch.dict(sys.modules, {"datasets": None}):
            with self.assertRaisesRegex(PenstockError, "pip install datasets"):
                self.write(self.folder / "rows.parquet")


class Order(Folder):
    def rows_of(self, loader):
        return [batch for batch in loader]

    def learned(self, documents):
        """Each pair of a token and the one before it, where it is learned."""
        pairs = []
        for k in range(len(documents)):
            ids, learned = documents[k]
            pairs += [(a, b) for a, b, one in zip(ids[:-1], ids[1:], learned[1:]) if one]
        return sorted(pairs)

    def seen(self, batches):
        pairs = []
        for batch in batches:
            for ids, labels in zip(batch["input_ids"].numpy(), batch["labels"].numpy()):
                self.assertEqual(labels[0], -100)
                counts = np.flatnonzero(labels != -100)
                self.assertEqual(ids[counts].tolist(), labels[counts].tolist())
                pairs += [(ids[k - 1], ids[k]) for k in counts]
        return sorted(pairs)

    LENGTHS = [3, 9, 2, 31, 7, 7, 1, 12, 5, 64, 2, 8, 8, 4, 17, 6]

    def test_each_token_is_learned_once_in_an_epoch(self):
        documents = self.documents(self.LENGTHS)
        for loader in (documents.packed(16, batch_size=3), documents.padded(batch_size=3),
                       documents.padded(11, batch_size=4)):  # fmt: skip
            first, second = self.rows_of(loader), self.rows_of(loader)
            self.assertEqual(self.seen(first), self.learned(documents))
            self.assertEqual(self.seen(second), self.learned(documents))
            self.assertFalse(all(torch.equal(a["input_ids"], b["input_ids"])
                                 for a, b in zip(first, second)))  # fmt: skip

    def test_a_packed_row_has_whole_documents_with_positions_of_their_own(self):
        documents = self.documents([4, 5, 3, 4, 6, 2])
        rows = torch.cat([one["position_ids"] for one in documents.packed(8, batch_size=1)])
        self.assertIn(len(rows), (3, 4))  # 24 tokens
        for row in rows.tolist():
            begins = [k for k in range(8) if row[k] == 0]
            for begin, end in zip(begins, [*begins[1:], 8]):
                self.assertEqual(row[begin:end], list(range(end - begin)))

    def test_padding_is_masked_by_place(self):
        documents = self.documents([4, 5, 3, 2], learned=True)
        (batch,) = documents.padded(batch_size=4, columns=(
            "input_ids", "attention_mask", "labels", "targets", "position_ids"))  # fmt: skip
        self.assertEqual(batch["input_ids"].shape, (4, 5))  # at most that of the longest
        self.assertEqual(batch["attention_mask"].sum(1).tolist(), [2, 3, 4, 5])
        counts = batch["labels"] != -100
        self.assertEqual(counts.sum(1).tolist(), [1, 2, 3, 4])
        self.assertTrue(torch.equal(batch["targets"][:, :-1], batch["labels"][:, 1:]))

    def test_it_goes_on_anywhere(self):
        documents = self.documents(self.LENGTHS)
        for make in (lambda: documents.packed(16, batch_size=3),
                     lambda: documents.padded(batch_size=3),
                     lambda: documents.padded(batch_size=3, drop_last=True)):  # fmt: skip
            loader, batches, places = make(), [], []
            for _ in range(2):
                places.append(json.dumps(loader.state_dict()))
                for batch in loader:
                    batches.append(batch)
                    places.append(json.dumps(loader.state_dict()))
                places.pop()
            for k, place in enumerate(places):
                other = make()
                other.load_state_dict(json.loads(place))
                for found, wanted in zip(self.rows_of(other), batches[k:]):
                    for name in wanted:
                        self.assertTrue(torch.equal(found[name], wanted[name]))

    def test_a_place_in_other_data_is_refused(self):
        documents = self.documents(self.LENGTHS)
        place = documents.packed(16, batch_size=3).state_dict()
        for other in (documents.packed(16, batch_size=4), documents.padded(16, batch_size=3),
                      documents.packed(16, batch_size=3, seed=2)):  # fmt: skip
            with self.assertRaisesRegex(PenstockError, "other data, or in another order"):
                other.load_state_dict(place)
        for wrong in ({}, {**place, "batch": 999}):
            with self.assertRaises(PenstockError):
                documents.packed(16, batch_size=3).load_state_dict(wrong)

    def test_files_that_do_not_fit_are_refused(self):
        documents = self.documents(self.LENGTHS)
        path = documents.folder / "00001.learned"
        path.write_bytes(path.read_bytes()[:-1])
        with self.assertRaisesRegex(PenstockError, "00001: the files are not those of the"):
            Documents(documents.folder)
        (documents.folder / "manifest.json").write_text("{}")
        with self.assertRaisesRegex(PenstockError, "manifest.json: expected the manifest"):
            Documents(documents.folder)

    def test_options_that_cannot_be(self):
        documents = self.documents(self.LENGTHS)
        with self.assertRaisesRegex(ValueError, "columns: rows of several documents have no"):
            documents.packed(16, batch_size=3, columns=("input_ids", "attention_mask"))
        with self.assertRaisesRegex(ValueError, "length: expected at least 2"):
            documents.packed(1, batch_size=3)
        with self.assertRaisesRegex(PenstockError, "drop_last: there are fewer rows"):
            documents.packed(16, batch_size=300, drop_last=True)

    def test_an_epoch_of_fewer_rows_than_a_batch_is_stepped_over(self):
        documents = self.documents([3, 4, 4, 5, 3, 5, 2, 6])

        def rows(seed, epoch):
            loader = documents.packed(8, batch_size=1, seed=seed)
            loader.load_state_dict({**loader.state_dict(), "epoch": epoch})
            return len(loader)

        seed = next(one for one in range(99) if rows(one, 0) > rows(one, 1))
        loader = documents.packed(8, batch_size=rows(seed, 0), seed=seed, drop_last=True)
        for _ in range(3):
            self.assertEqual(len(loader), 1)
            self.assertEqual([len(one["labels"]) for one in loader], [rows(seed, 0)])
        place = loader.state_dict()
        loader.load_state_dict({**place, "epoch": 1})
        self.assertGreater(loader.state_dict()["epoch"], 1)

    def test_files_of_tokens_are_windows(self):
        random = np.random.default_rng(1)
        tokens = random.integers(1, 9, 57).astype("<u2")
        tokens[[20, 40, 55]] = 0
        (self.folder / "a.bin").write_bytes(tokens.tobytes())
        np.save(self.folder / "b.npy", tokens.astype(np.int32)[:33])
        files = [self.folder / "a.bin", self.folder / "b.npy"]
        whole = [(a, b) for row in (tokens, tokens[:33]) for a, b in zip(row[:-1], row[1:])]
        plain = Tokens(files).windows(9, batch_size=2)
        self.assertEqual(len(plain), 6)  # (7 + 4) / 2
        self.assertEqual(self.seen(plain), sorted(whole))
        apart = Tokens(files, end=0)
        batches = self.rows_of(apart.windows(9, batch_size=2))
        self.assertEqual(self.seen(batches), sorted((a, b) for a, b in whole if a != 0))
        for batch in batches:
            after = batch["input_ids"].roll(1, 1) == 0
            self.assertTrue((batch["position_ids"][after] == 0).all())
        header = np.array([20240520, 1, 57] + [0] * 253, "<i4").tobytes()  # of llm.c
        content = (self.folder / "a.bin").read_bytes()
        (self.folder / "llm.bin").write_bytes(header + content)
        self.assertEqual(self.seen(Tokens(self.folder / "llm.bin").windows(9, batch_size=2)),
                         sorted(whole[:56]))  # fmt: skip
        (self.folder / "llm.bin").write_bytes(header + content[:-2])
        with self.assertRaisesRegex(PenstockError, "expected the 57 tokens .* found 56"):
            Tokens(self.folder / "llm.bin")
        # Nothing is learned in two windows inside of the file, and in one at its end.
        tokens = np.array([5, 6, 7, 0, 0, 0, 0, 0, 0, 8, 9, 0, 0, 0, 0, 3], "<u2")
        (self.folder / "gaps.bin").write_bytes(tokens.tobytes())
        for length, left in ((3, 4), (4, 2), (2, 5)):
            found = Tokens(self.folder / "gaps.bin", 0).windows(length, batch_size=1)
            batches = self.rows_of(found)
            self.assertEqual(len(batches), left)
            self.assertTrue(all((one["labels"] != -100).any() for one in batches))
            self.assertEqual(self.seen(batches), [(5, 6), (6, 7), (7, 0), (8, 9), (9, 0)])
        with self.assertRaisesRegex(PenstockError, "expected one row of whole .*found float"):
            np.save(self.folder / "c.npy", np.zeros(4))
            Tokens(self.folder / "c.npy")


if __name__ == "__main__":
    unittest.main()
