"""Texts as tokens of a tokenizer.json; needs the package tokenizers for most of it."""

import array
import json
import subprocess
import sys
import tempfile
import unittest
from pathlib import Path
from unittest import mock

from penstock import PenstockError, text
from penstock._tool import tool_path

try:
    import tokenizers
except ImportError:
    tokenizers = None

SENTENCES = [
    f"the {a} {b}s  the Größe of {a}" for a in ("cat", "dog", "house") for b in ("see", "paint")
]


def lines_of(path, lines):
    path.write_text("\n".join(lines) + "\n", encoding="utf-8")
    return path


def numbers(path, kind):
    found = array.array(kind)
    found.frombytes(path.read_bytes())
    return list(found)


class Folder(unittest.TestCase):
    def setUp(self):
        folder = tempfile.TemporaryDirectory()
        self.addCleanup(folder.cleanup)
        self.folder = Path(folder.name)
        self.train = lines_of(self.folder / "train.txt", SENTENCES * 20)


class WithoutThePackage(Folder):
    def test_the_message_says_what_to_install(self):
        with mock.patch.dict(sys.modules, {"tokenizers": None}):
            with self.assertRaisesRegex(PenstockError, "pip install tokenizers"):
                text.token_folder("tokenizer.json", self.folder / "out", train=self.train)
        self.assertFalse((self.folder / "out").exists())

    def test_arguments_that_do_not_exist_are_refused(self):
        with self.assertRaisesRegex(TypeError, "no argument 'start'"):
            text.token_folder("tokenizer.json", self.folder / "out", train=self.train, start="<s>")

    def test_files_of_others_stay(self):
        (self.folder / "manifest.json").write_text('{"name": "a web page"}')
        with self.assertRaisesRegex(PenstockError, "holds other files than tokens"):
            text._open_folder(self.folder, [])
        (self.folder / "manifest.json").write_text('{"format": "penstock-tokens"}')
        with self.assertRaisesRegex(PenstockError, "train.txt lies in the folder to be written"):
            text._open_folder(self.folder, [self.train])
        lines_of(self.folder / "train.notes", ["mine"])
        lines_of(self.folder / "train.bin", ["tokens"])
        text._open_folder(self.folder, [])
        self.assertTrue((self.folder / "train.notes").exists())
        self.assertFalse((self.folder / "train.bin").exists())


@unittest.skipIf(tokenizers is None, "the package tokenizers is not installed")
class Tokenizers(Folder):
    def byte_level(self, special=("<pad>", "<unk>", "<s>", "</s>")):
        """A byte-pair vocabulary of GPT-2's kind."""
        made = tokenizers.Tokenizer(tokenizers.models.BPE())
        made.pre_tokenizer = tokenizers.pre_tokenizers.ByteLevel(add_prefix_space=False)
        made.decoder = tokenizers.decoders.ByteLevel()
        trainer = tokenizers.trainers.BpeTrainer(
            vocab_size=300,
            special_tokens=list(special),
            initial_alphabet=tokenizers.pre_tokenizers.ByteLevel.alphabet(),
            show_progress=False,
        )
        made.train([str(self.train)], trainer)
        made.save(str(self.folder / "tokenizer.json"))
        return made

    def test_tokens_come_back_as_the_text(self):
        made = self.byte_level()
        manifest = text.token_folder(
            self.folder / "tokenizer.json",
            self.folder / "out",
            train=self.train,
            test=lines_of(self.folder / "test.txt", [SENTENCES[0], "a new 東京 line"]),
        )
        self.assertEqual(manifest["parts"]["train"]["sentences"], len(SENTENCES) * 20)
        self.assertEqual(manifest["recurs"], 0.5)
        self.assertEqual(manifest["vocabulary"]["end"], made.token_to_id("</s>"))
        tokens = numbers(self.folder / "out" / "test.bin", "H")
        self.assertEqual(manifest["parts"]["test"]["tokens"], len(tokens))
        sentences, sentence = [], []
        for token in tokens:
            if token == manifest["vocabulary"]["end"]:
                sentences.append(made.decode(sentence))
                sentence = []
            else:
                sentence.append(token)
        self.assertEqual(sentences, ["the cat sees the Größe of cat", "a new 東京 line"])
        written = json.loads((self.folder / "out" / "manifest.json").read_text())
        self.assertEqual(written["task"], "text")

    def test_the_trainer_reads_the_folder(self):
        self.byte_level()
        text.token_folder(self.folder / "tokenizer.json", self.folder / "out", train=self.train)
        sizes = ["--model", "gpt", "--input", "16", "--width", "16", "--depth", "1"]
        run = subprocess.run(
            [tool_path(), "train", *sizes, "--data", self.folder / "out", "--strategy", "serial"]
            + ["--batch-size", "8", "--steps", "3", "--metric", "perplexity", "--json"],
            capture_output=True,
            text=True,
        )
        self.assertEqual(run.returncode, 0, run.stderr)
        self.assertEqual(len(json.loads(run.stdout)["losses"]), 3)

    def test_translations_are_scored_by_their_text(self):
        made = self.byte_level()
        target = lines_of(self.folder / "target.txt", [line[4:] for line in SENTENCES * 20])
        text.token_folder(
            self.folder / "tokenizer.json",
            self.folder / "out",
            train=(self.train, target),
            test=(self.train, target),
        )
        begins = numbers(self.folder / "out" / "train.target.idx", "Q")
        tokens = numbers(self.folder / "out" / "train.target.bin", "H")
        self.assertEqual(len(begins), len(SENTENCES) * 20 + 1)
        pieces = (self.folder / "out" / "vocabulary.txt").read_bytes().split(b"\n")
        first = tokens[begins[0] : begins[1]]
        self.assertEqual(b"".join(pieces[t] for t in first).decode().replace("\u2581", " "),
                         made.decode(first))
        model = ["--model", "gnmt8", "--input", "24x24", "--width", "8", "--depth", "2"]
        run = subprocess.run(
            [tool_path(), "train", *model, "--data", self.folder / "out", "--strategy", "serial"]
            + ["--batch-size", "8", "--steps", "2", "--metric", "bleu", "--json"],
            capture_output=True,
            text=True,
        )
        self.assertEqual(run.returncode, 0, run.stderr)

    def test_large_vocabularies_have_wide_tokens(self):
        made = tokenizers.Tokenizer(
            tokenizers.models.WordLevel(
                {"</s>": 0, "[UNK]": 1, **{f"w{i}": i for i in range(2, 70_000)}}, unk_token="[UNK]"
            )
        )
        made.pre_tokenizer = tokenizers.pre_tokenizers.Whitespace()
        made.save(str(self.folder / "tokenizer.json"))
        manifest = text.token_folder(
            self.folder / "tokenizer.json",
            self.folder / "out",
            train=lines_of(self.folder / "words.txt", ["w69999 w2 other"]),
        )
        self.assertEqual(numbers(self.folder / "out" / "train.bin", "I")[256:], [69999, 2, 1, 0])
        self.assertEqual(manifest["parts"]["train"]["unknown"], 1)

    def test_what_does_not_fit_is_refused(self):
        path = self.folder / "tokenizer.json"
        self.byte_level(special=("<unk>", "</s>"))
        with self.assertRaisesRegex(PenstockError, "found padding 1 and 2\\d\\d tokens"):
            text.token_folder(path, self.folder / "out", train=(self.train, self.train))
        self.byte_level(special=("</s>",))  # token 0, which stands for padding, too
        refused = [
            (dict(train=self.train, end="[STOP]"), "no token \\[STOP\\]; name its own with end="),
            (dict(train=self.train, test=(self.train, self.train)), "one file for each part"),
        ]
        for arguments, message in refused:
            with self.assertRaisesRegex(PenstockError, message):
                text.token_folder(path, self.folder / "out", **arguments)
        short = lines_of(self.folder / "short.txt", SENTENCES)
        with self.assertRaisesRegex(PenstockError, "on the line of the same number"):
            text.token_folder(path, self.folder / "out", train=(self.train, short))
        lines_of(path, ["no tokenizer"])
        with self.assertRaisesRegex(PenstockError, "expected a tokenizer.json"):
            text.token_folder(path, self.folder / "out", train=self.train)

    def test_the_command_says_what_it_made(self):
        self.byte_level()
        for tokenizer, code in (("tokenizer.json", 0), ("none.json", 2)):
            run = subprocess.run(
                [sys.executable, "-m", "penstock.text", "--tokenizer", self.folder / tokenizer]
                + ["--train", self.train, "-o", self.folder / "out"],
                capture_output=True,
                text=True,
            )
            self.assertEqual(run.returncode, code, run.stderr)
            said = "vocabulary of 292 tokens" if code == 0 else "none.json"
            self.assertIn(said, run.stdout + run.stderr)


if __name__ == "__main__":
    unittest.main()
