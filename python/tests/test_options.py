"""Options: rows of one table, which the command line and the Trainer share.

test_options.py [-k NAME]
"""

import inspect
import unittest

import torch
from torch import nn

import penstock
from penstock import _core

#: What the Trainer has beside the rows: the model and how it is exported, what torch.optim calls
#: otherwise, names of classes, the bar, batches that make a step.
OWN = {"self", "model", "example", "any_length", "betas", "eps", "classes", "progress",
       "gradient_accumulation_steps"}  # fmt: skip


class Options(unittest.TestCase):
    def test_each_row_is_a_keyword_or_says_why_not(self):
        parameters = inspect.signature(penstock.Trainer.__init__).parameters
        keywords = {row["keyword"] for row in _core.rows() if row["keyword"]}
        self.assertEqual(keywords - set(parameters), set())
        self.assertEqual(set(parameters) - keywords, OWN)
        for row in _core.rows():
            self.assertNotEqual(bool(row["keyword"]), bool(row["not_in_python"]), row["name"])

    def test_each_keyword_is_documented(self):
        for row in _core.rows():
            if row["keyword"]:
                self.assertIn(row["keyword"], penstock.Trainer.__doc__, row["name"])

    def test_drop_last_leaves_out_a_step_that_is_not_full(self):
        torch.manual_seed(1)
        x, y = torch.randn(20, 4), torch.randint(3, (20,))
        steps = []
        for drop in (False, True):
            trainer = penstock.Trainer(
                nn.Sequential(nn.Linear(4, 8), nn.Tanh(), nn.Linear(8, 3)), x[:8],
                workers=1, strategy="serial", batch_size=8, drop_last=drop,
            )  # fmt: skip
            trainer.fit(x, y, epochs=2)
            steps.append(trainer.steps)
        self.assertEqual(steps, [6, 4])
        with self.assertRaisesRegex(ValueError, "drop_last: the 20 samples do not fill"):
            trainer.fit(x, y, batch_size=21)

    def test_boundary_codes_the_messages_of_the_plan_that_is_made(self):
        x, y = torch.randn(32, 4), torch.randint(3, (32,))
        weights = {}
        for boundary in (None, "int8"):
            torch.manual_seed(1)
            trainer = penstock.Trainer(
                nn.Sequential(nn.Linear(4, 16), nn.Tanh(), nn.Linear(16, 3)), x[:8],
                workers=2, strategy="1f1b-flush", batch_size=8, boundary=boundary,
            )  # fmt: skip
            trainer.fit(x, y)
            codings = [link.get("coding") for link in trainer.plan["links"]]
            self.assertEqual(codings, [boundary])
            weights[boundary] = trainer.state_dict()["0.weight"]
        self.assertFalse(torch.equal(weights[None], weights["int8"]))
        torch.testing.assert_close(weights[None], weights["int8"], rtol=0.05, atol=0.01)
        with self.assertRaisesRegex(penstock.PenstockError, "subspace:K"):
            penstock.Trainer(nn.Linear(4, 3), x[:8], boundary="int4")


if __name__ == "__main__":
    unittest.main()
