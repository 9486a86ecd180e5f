"""The Python of README.md runs as it stands there."""

import re
import unittest
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]


class DocumentsTest(unittest.TestCase):
    def test_readme(self):
        blocks = re.findall(r"```python\n(.*?)```", (ROOT / "README.md").read_text(), re.S)
        self.assertEqual(len(blocks), 1)
        exec(compile(blocks[0], "README.md", "exec"), {})


if __name__ == "__main__":
    unittest.main()
