"""Small networks that a laptop CPU can train from pixels.

Sizes are chosen so that two cores do a forward pass for 16 environments in about
3 ms per camera and a forward-backward pass for 256 samples in about 60 ms.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

import torch
from torch import nn

from recon.core.errors import UsageError
from recon.core.seeding import torch_generator
from rl.normalise import RunningStats, ScaledValue
from rl.types import ActionSpec, ObsSpec, Packed


@dataclass(frozen=True)
class NetConfig:
    """Architecture.

    Attributes:
        image_size: Side of the square pictures the network reads [px]; larger ones are area-averaged to it.
        cell: Picture pixels per cell of the maps: 2 finds smaller things than 4 at four times the cost.
        channels: Points found per camera.
        hidden: Widths of the actor's and of the critic's hidden layers.
        log_std: Initial log standard deviation of each action.
        log_std_min: Floor of the same: exploration never stops.
    """

    image_size: int = 64
    cell: int = 4
    channels: int = 24
    hidden: tuple[int, ...] = (256, 128)
    log_std: float = -1.0
    log_std_min: float = -3.0

    def __post_init__(self) -> None:
        if self.image_size < 16 or self.image_size % 8:
            raise UsageError(f"image_size is {self.image_size}", why="it must be a multiple of 8, at least 16")
        if self.cell not in (2, 4, 8):
            raise UsageError(f"cell is {self.cell}", why="it must be 2, 4 or 8 pixels")
        if self.log_std < self.log_std_min:
            raise UsageError(f"log_std {self.log_std} lies below its floor log_std_min {self.log_std_min}")


class ImageEncoder(nn.Module):
    """Pictures to positions: convolutions, then the soft arg-max of each channel.

    With w = softmax over the cells of (sharpness * map), a channel's point is the sum of
    w times the cell's position, found to a fraction of a cell. A picture becomes a list of
    where things are and nothing else: it cannot memorise pictures, so a few dozen
    demonstrations teach it to reach. Cameras share the convolutions. What is always there is
    subtracted first (`see`): cameras and bench stand still, so that what is left is the arm and
    the things that are somewhere else each time.
    """

    line: torch.Tensor
    still: torch.Tensor  # [K, 3, h, w] mean picture of each camera, in the units of the input

    def __init__(self, cameras: int, config: NetConfig, device: torch.device | str = "cpu") -> None:
        super().__init__()
        c, stride = config.channels, config.cell
        self.maps = nn.Sequential(
            nn.Conv2d(3, c, 2 * stride, stride, stride // 2, device=device),  # [c, grid, grid]
            nn.ReLU(),
            nn.Conv2d(c, c, 3, 1, 1, device=device),
        )
        grid = config.image_size // stride
        self.log_sharpness = nn.Parameter(torch.full((), math.log(5.0), device=device))
        line = (torch.arange(grid, device=device, dtype=torch.float32) + 0.5) * (2.0 / grid) - 1.0  # in (-1, 1)
        self.register_buffer("line", line, persistent=False)
        side = config.image_size
        self.register_buffer("still", torch.zeros(cameras, 3, side, side, device=device))
        self.size = cameras * 2 * c

    @staticmethod
    def _scaled(images: torch.Tensor) -> torch.Tensor:
        """uint8 [B, K, h, w, 3] -> [B, K, 3, h, w] in [-1, 1]."""
        return images.permute(0, 1, 4, 2, 3).to(torch.float32) * (2.0 / 255.0) - 1.0

    @torch.no_grad()
    def see(self, images: torch.Tensor) -> None:
        """Take the mean of uint8 [B, K, h, w, 3] as what is always there."""
        total = torch.zeros_like(self.still)
        for part in images.split(256):
            total += self._scaled(part.to(total.device)).sum(dim=0)
        self.still.copy_(total / len(images))

    def forward(self, images: torch.Tensor) -> torch.Tensor:
        """uint8 [B, K, h, w, 3] -> x then y of every channel's point, [B, K 2 channels], in (-1, 1)."""
        x = (self._scaled(images) - self.still).flatten(0, 1)
        maps = self.maps(x) * self.log_sharpness.exp()  # [B K, c, g, g]
        weights = torch.softmax(maps.flatten(2), dim=-1).view_as(maps)
        across = (weights.sum(dim=2) * self.line).sum(dim=-1)  # [B K, c]
        down = (weights.sum(dim=3) * self.line).sum(dim=-1)
        return torch.cat([across, down], dim=-1).view(len(images), self.size)


class ActorCritic(nn.Module):
    """A Gaussian policy and a value function over shared picture features.

    `features` is everything that depends on pixels; `mean` and `value` are small.
    The critic reads the features without sending gradients into them unless asked,
    and may read privileged simulator state; the actor never does.
    """

    def __init__(
        self, obs: ObsSpec, action: ActionSpec, config: NetConfig | None = None, device: torch.device | str = "cpu"
    ) -> None:
        super().__init__()
        config = config or NetConfig()
        self.obs, self.action, self.config = obs, action, config
        cameras = len(obs.cameras)
        self.encoder = ImageEncoder(cameras, config, device) if cameras else None
        self.proprio_stats = RunningStats(obs.proprio, device=device)
        self.privileged_stats = RunningStats(obs.privileged, device=device)
        self.feature_size = (self.encoder.size if self.encoder else 0) + obs.proprio
        self.actor = mlp(self.feature_size, config.hidden, device)
        self.actor_out = nn.Linear(config.hidden[-1], action.size, device=device)
        self.critic = mlp(self.feature_size + obs.privileged, config.hidden, device)
        self.critic_out = ScaledValue(config.hidden[-1], device=device)
        self.log_std_free = nn.Parameter(torch.full((action.size,), config.log_std, device=device))

    @property
    def device(self) -> torch.device:
        """Where the parameters are."""
        return self.log_std_free.device

    def features(self, batch: Packed) -> torch.Tensor:
        """Return [B, feature_size]: the picture code beside the normalised proprioception."""
        proprio = self.proprio_stats(batch.proprio)
        return torch.cat([self.encoder(batch.images), proprio], dim=-1) if self.encoder else proprio

    def mean(self, features: torch.Tensor) -> torch.Tensor:
        """Return the mean action [B, A]."""
        out: torch.Tensor = self.actor_out(self.actor(features))
        return out

    def log_std(self) -> torch.Tensor:
        """Return log standard deviations [A], never below the floor."""
        return self.log_std_free.clamp_min(self.config.log_std_min)

    def value(self, features: torch.Tensor, privileged: torch.Tensor) -> torch.Tensor:
        """Return values [B] in units of the return; no gradient reaches the features."""
        x = torch.cat([features.detach(), self.privileged_stats(privileged)], dim=-1)
        out: torch.Tensor = self.critic_out(self.critic(x))
        return out

    def actor_parameters(self) -> list[nn.Parameter]:
        """Return what the policy loss moves, without the picture encoder."""
        return [*self.actor.parameters(), *self.actor_out.parameters(), self.log_std_free]

    def critic_parameters(self) -> list[nn.Parameter]:
        """Return what the value loss moves."""
        return [*self.critic.parameters(), *self.critic_out.parameters()]

    def encoder_parameters(self) -> list[nn.Parameter]:
        """Return those of the picture encoder; none without cameras."""
        return list(self.encoder.parameters()) if self.encoder else []


def build(
    obs: ObsSpec,
    action: ActionSpec,
    config: NetConfig | None = None,
    *,
    seed: int = 0,
    device: torch.device | str = "cpu",
) -> ActorCritic:
    """Make a network whose first weights depend on `seed` only, whatever the device."""
    with torch.random.fork_rng(devices=[]):  # torch's own initialisation, overwritten below
        net = ActorCritic(obs, action, config, device="cpu")
    initialise(net, seed)
    return net.to(device)


def initialise(net: ActorCritic, seed: int) -> None:
    """Draw all weights afresh from a generator of their own."""
    generator = torch_generator(seed, 0, "rl/init")
    for module in net.modules():
        if isinstance(module, (nn.Linear, nn.Conv2d)):
            fan_in = module.weight[0].numel()
            gain = 0.01 if module is net.actor_out else 0.1 if module is net.critic_out.linear else math.sqrt(2.0)
            with torch.no_grad():
                module.weight.normal_(0.0, gain / math.sqrt(fan_in), generator=generator)
                if module.bias is not None:
                    module.bias.zero_()


def mlp(inputs: int, widths: tuple[int, ...], device: torch.device | str = "cpu") -> nn.Sequential:
    """Return Linear + SiLU layers of the given widths."""
    layers: list[nn.Module] = []
    for width in widths:
        layers += [nn.Linear(inputs, width, device=device), nn.SiLU()]
        inputs = width
    return nn.Sequential(*layers)
