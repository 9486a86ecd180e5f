"""weights_back.py FIXTURES MODEL=WEIGHTS...: each weights.pt goes back into its model."""

import importlib.util
import sys
from pathlib import Path

import torch

fixtures = Path(sys.argv[1])
spec = importlib.util.spec_from_file_location("make_fixtures", fixtures / "make_fixtures.py")
module = importlib.util.module_from_spec(spec)
spec.loader.exec_module(module)
for entry in sys.argv[2:]:
    name, path = entry.split("=")
    model = getattr(module, name)()
    weights = torch.load(path)
    frozen = {key: p for key, p in model.named_parameters() if not p.requires_grad}
    if not frozen.keys().isdisjoint(weights):
        sys.exit(f"{name}: frozen parameters are in {path}")
    before = torch.export.load(fixtures / f"{name.lower()}.pt2").state_dict
    given = {key: before[key] for key in frozen}
    print(name, model.load_state_dict({**weights, **given}, strict=True))
    changed = False
    for key, parameter in model.named_parameters():
        same = torch.equal(parameter, before[key])
        changed = changed or not same
    if not changed:
        sys.exit(f"{name}: all weights are as they were before training")
