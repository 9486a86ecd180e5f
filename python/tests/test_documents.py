"""The Python of README.md runs as it stands there."""

import importlib.util
import re
import sys
import types
import unittest
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]


def resnet18(num_classes):
    """That of the example, a quarter as wide, where torchvision is not installed."""
    source = (ROOT / "examples/python/resnet18.py").read_text()
    model_alone = source.split("rng = ")[0]
    names = {}
    exec(compile(model_alone, "resnet18.py", "exec"), names)
    return names["resnet18"](num_classes, width=16)


class DocumentsTest(unittest.TestCase):
    def test_readme(self):
        blocks = re.findall(r"```python\n(.*?)```", (ROOT / "README.md").read_text(), re.S)
        self.assertEqual(len(blocks), 1)
        if importlib.util.find_spec("torchvision") is None:
            vision = types.ModuleType("torchvision")
            vision.models = types.SimpleNamespace(resnet18=resnet18)
            sys.modules["torchvision"] = vision
        names = {}
        exec(compile(blocks[0], "README.md", "exec"), names)
        trained = names["trainer"].state_dict()
        self.assertEqual(set(trained), set(names["model"].state_dict()))
        counts = [int(trained[name]) for name in trained if name.endswith("num_batches_tracked")]
        self.assertGreater(min(counts), 0)


if __name__ == "__main__":
    unittest.main()
