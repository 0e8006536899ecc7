"""The published reward network, written with PyTorch's own layers from its description."""

import torch
from torch import nn


class Encoder(nn.Module):
    def __init__(self):
        super().__init__()
        self.char_lt = nn.Embedding(256, 32, padding_idx=0)
        self.conv1 = nn.Conv1d(32, 64, 7)

        def pool():
            return nn.MaxPool1d(3, 3)

        self.conv2_6_fc = nn.Sequential(
            nn.ReLU(), pool(),
            nn.Conv1d(64, 64, 7), nn.ReLU(), pool(),
            nn.Conv1d(64, 64, 3), nn.ReLU(),
            nn.Conv1d(64, 64, 3), nn.ReLU(),
            nn.Conv1d(64, 64, 3), nn.ReLU(),
            nn.Conv1d(64, 64, 3), nn.ReLU(), pool(),
            nn.Flatten(), nn.Linear(320, 128), nn.ReLU(),
        )  # fmt: skip
        self.fc = nn.Sequential(nn.Linear(128, 256), nn.ReLU(), nn.Linear(256, 512))

    def forward(self, message):
        x = self.char_lt(message.long()).transpose(1, 2)
        return self.fc(self.conv2_6_fc(self.conv1(x)))


class TorchReward(nn.Module):
    """306,945 parameters, and the two heads that the published checkpoints carry along."""

    def __init__(self, unused_heads: bool = True):
        super().__init__()
        self.encoder = Encoder()
        self.reward_fn = nn.Sequential(nn.ReLU(), nn.Linear(512, 1))
        for layer in self.modules():
            if isinstance(layer, nn.Linear):
                nn.init.orthogonal_(layer.weight, 1.0)
                nn.init.zeros_(layer.bias)
        if unused_heads:
            self.critic_linear = nn.Linear(512, 1)
            self.action_parameterization = nn.Module()
            self.action_parameterization.distribution_linear = nn.Linear(512, 23)

    def forward(self, message):
        return self.reward_fn(self.encoder(message))[:, 0]


def train(model: TorchReward, batches, learning_rate: float) -> list[float]:
    """The plain way: every moment of every pair through the network. Batches of (messages [B, 2, 256], p [B])."""
    optimizer = torch.optim.SGD(model.parameters(), lr=learning_rate)
    losses = []
    for messages, p in batches:
        rewards = model(torch.from_numpy(messages).reshape(-1, 256)).reshape(-1, 2)
        log = torch.log_softmax(rewards, -1)
        p = torch.from_numpy(p)
        loss = (-(1 - p) * log[:, 0] - p * log[:, 1]).mean()
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        losses.append(loss.item())
    return losses
