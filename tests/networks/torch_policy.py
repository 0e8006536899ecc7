"""The published policy network, written with PyTorch's own layers from its description."""

import torch
from torch import nn


def layers(inputs: int) -> nn.Sequential:
    return nn.Sequential(nn.Linear(inputs, 128), nn.ELU(), nn.Linear(128, 128), nn.ELU())


class TorchPolicy(nn.Module):
    """2,795,640 parameters with 23 actions."""

    def __init__(self, num_actions: int = 23):
        super().__init__()
        self.image = nn.Sequential(
            nn.Conv2d(3, 32, 8, 4), nn.ELU(),
            nn.Conv2d(32, 64, 4, 2), nn.ELU(),
            nn.Conv2d(64, 128, 3, 2), nn.ELU(),
            nn.Flatten(), nn.Linear(1152, 512), nn.ELU(),
        )  # fmt: skip
        self.vector, self.message = layers(27), layers(256)
        self.core = nn.GRUCell(795, 512)
        self.value, self.policy = nn.Linear(512, 1), nn.Linear(512, num_actions)

    def forward(self, image, vector, message, first, core):
        """image [B, 72, 72, 3] and message [B, 256] bytes, vector [B, 27] scaled, first [B] bool, core [B, 512]"""
        image = self.image(image.permute(0, 3, 1, 2).float() / 255)
        features = torch.cat([image, self.vector(vector), vector, self.message(message.float() / 255)], -1)
        core = self.core(features, core.masked_fill(first[:, None], 0))
        return self.policy(core), self.value(core)[:, 0], core
