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
