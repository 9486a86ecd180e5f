"""The Python of README.md runs as it stands there, and learns."""

import re
import unittest
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
DATA = Path("/usr/share/datasets/fashion-mnist")  # Debian's dataset-fashion-mnist


class DocumentsTest(unittest.TestCase):
    @unittest.skipUnless(DATA.exists(), "no Fashion-MNIST here (scripts/install-deps.sh)")
    def test_readme(self):
        blocks = re.findall(r"```python\n(.*?)```", (ROOT / "README.md").read_text(), re.S)
        self.assertEqual(len(blocks), 1)
        names = {}
        exec(compile(blocks[0], "README.md", "exec"), names)
        self.assertGreater(names["test"]["accuracy"], 0.6)
        trained = names["trainer"].state_dict()
        weights = names["model"].state_dict()
        self.assertEqual(set(trained), set(weights))
        for name, weight in weights.items():
            self.assertTrue(weight.equal(trained[name]), name)


if __name__ == "__main__":
    unittest.main()
