"""A plan of Penstock in PyTorch's own pipelining, on two processes:
torchrun --standalone --nproc-per-node 2 pytorch_pipeline.py"""

import os
import sys

import penstock.pytorch
import torch
import torch.distributed as dist
from torch import nn
from torch.nn.functional import cross_entropy

if "RANK" not in os.environ:  # not started by torchrun: do so
    os.execv(sys.executable, [sys.executable, "-m", "torch.distributed.run", "--standalone",
                              "--nproc-per-node", "2", *sys.argv])  # fmt: skip


def block(width):
    return nn.Sequential(nn.LayerNorm(width), nn.Linear(width, width), nn.GELU())


torch.manual_seed(1)
torch.set_num_threads(1)
model = nn.Sequential(nn.Linear(16, 64), *(block(64) for _ in range(4)), nn.Linear(64, 4))
x = torch.randn(64, 16)
y = x[:, :4].argmax(1)

dist.init_process_group("gloo")
plan = [None]
if dist.get_rank() == 0:  # measured times differ from rank to rank, and the plan with them
    costs = penstock.profile(model, x, batch_size=16, progress=False)
    plan = [penstock.plan(costs, workers=2, strategy="zb-h1", straight=True, micro_batches=4)]
dist.broadcast_object_list(plan)

stages, schedule = penstock.pytorch.pipeline(model, x, plan[0], loss_fn=cross_entropy)
weights = [weight for stage in stages for weight in stage.submod.parameters()]
optimizer = torch.optim.Adam(weights, lr=1e-2)
history = []
for _ in range(30):
    optimizer.zero_grad()
    losses = []
    schedule.step(x, target=y, losses=losses)
    optimizer.step()
    history += [torch.stack(losses).mean().item()] if losses else []
if history:  # on the rank of the last stage
    print(f"loss {history[0]:.3f} at first, {history[-1]:.3f} after 30 steps")
    assert history[-1] < 0.5 * history[0]
dist.destroy_process_group()
