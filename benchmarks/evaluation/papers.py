"""What the PipeDream paper (SOSP 2019) reports, with the table, figure or section each number
stands in. No input or output.

    REPORTED[0].ratio        # of VGG-16 on 4 servers of cluster A over data parallelism

Numbers that say "read off" come from a bar chart and are no better than about 5 %.
"""

import dataclasses

@dataclasses.dataclass(frozen=True)
class Reported:
    """A ratio of two methods' throughputs on a model and a cluster."""

    model: str  # of the published profiles: vgg16, resnet50, gnmt8
    servers: int
    gpus: int  # per server
    cluster: str  # of the paper's table 2
    config: str  # the plan of the first method
    over: str  # the second method: dp, mp, hybrid
    ratio: float
    where: str
    speed: float = 1.0  # samples of the published profile over those that the paper trained with
    batch: int = 0  # samples per GPU, of section 5.1; 0: those of the published profile
    device: str = "v100"  # for estimated layer times

    @property
    def title(self):
        return f"{self.model}, {self.servers}x{self.gpus} ({self.cluster.upper()})"


# The published profile of VGG-16 has mini-batches of 128 samples, the paper's runs had 64. Devices
# of twice the speed stand for that; messages between stages are then counted twice, too.
VGG_SPEED = 2.0

# PipeDream's throughput over another method's. Per epoch, which is throughput; the time to an
# accuracy differs in table 1 where the number of epochs does.
REPORTED = [
    Reported("vgg16", 4, 4, "a", "15-1", "dp", 5.28, "table 1", VGG_SPEED),
    Reported("vgg16", 2, 8, "b", "15-1", "dp", 2.98, "table 1", VGG_SPEED),
    Reported("resnet50", 4, 4, "a", "16", "dp", 1.0, "table 1"),
    Reported("resnet50", 2, 8, "b", "16", "dp", 1.0, "table 1"),
    Reported("gnmt8", 1, 4, "a", "straight", "dp", 1.5, "table 1"),
    Reported("gnmt8", 3, 4, "a", "straight", "dp", 2.95, "table 1"),
    Reported("gnmt8", 2, 8, "b", "16", "dp", 1.0, "table 1"),
    Reported("vgg16", 1, 4, "a", "", "mp", 14.9, "section 5.3", VGG_SPEED),
    Reported("gnmt8", 1, 4, "a", "", "mp", 2.6, "figure 14a, read off"),
    Reported("vgg16", 1, 4, "a", "", "hybrid", 1.8, "section 5.3", VGG_SPEED),
]


def full_size(model, batch, *row, device="v100"):
    return Reported(model, *row, "table 1", batch=batch, device=device)


# Table 1 with the batch sizes of section 5.1: PipeDream over data parallelism, per epoch.
FULL_SIZE = [
    full_size("vgg16", 64, 4, 4, "a", "15-1", "dp", 5.28),
    full_size("vgg16", 64, 2, 8, "b", "15-1", "dp", 2.98),
    full_size("alexnet", 256, 4, 4, "a", "15-1", "dp", 4.92),
    full_size("alexnet", 256, 2, 8, "b", "15-1", "dp", 2.04),
    full_size("resnet50", 128, 4, 4, "a", "16", "dp", 1.0),
    full_size("resnet50", 128, 2, 8, "b", "16", "dp", 1.0),
    full_size("gnmt16", 64, 1, 4, "a", "straight", "dp", 1.46),
    full_size("gnmt16", 64, 4, 4, "a", "straight", "dp", 2.34),
    full_size("gnmt16", 64, 2, 8, "b", "straight", "dp", 3.14),
    full_size("gnmt8", 64, 1, 4, "a", "straight", "dp", 1.5),
    full_size("gnmt8", 64, 3, 4, "a", "straight", "dp", 2.95),
    full_size("gnmt8", 64, 2, 8, "b", "16", "dp", 1.0),
    full_size("awd_lm", 80, 1, 4, "a", "straight", "dp", 4.25),
    full_size("s2vt", 80, 4, 1, "c", "2-1-1", "dp", 3.01, device="titan-x"),
]
