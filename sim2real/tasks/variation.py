"""What may differ from episode to episode besides where things are. Everything is off unless a task turns it on."""

from __future__ import annotations

from dataclasses import dataclass, field

Range = tuple[float, float]


@dataclass(frozen=True)
class CameraNoise:
    """Uniform errors of each camera. position: +-m per axis. rotation_deg: +-deg about each axis. focal: +-share."""

    position: float = 0.0
    rotation_deg: float = 0.0
    focal: float = 0.0

    def __post_init__(self) -> None:
        if not (0 <= self.position <= 0.5 and 0 <= self.rotation_deg <= 30 and 0 <= self.focal <= 0.5):
            raise ValueError("camera noise must lie within 0..0.5 m, 0..30 deg and 0..0.5 of the focal length")


@dataclass(frozen=True)
class LightNoise:
    """exposure_ev: +-stops. white_balance: +-share of red and blue. gamma: +-share of the exponent. tint: up to this
    share of a random colour is mixed in. The first two act on linear light."""

    exposure_ev: float = 0.0
    white_balance: float = 0.0
    gamma: float = 0.0
    tint: float = 0.0

    def __post_init__(self) -> None:
        if not (0 <= self.exposure_ev <= 4 and max(self.white_balance, self.gamma, self.tint) <= 0.9):
            raise ValueError("light noise must lie within 0..4 stops and shares of 0..0.9")
        if min(self.white_balance, self.gamma, self.tint) < 0:
            raise ValueError("light noise cannot be negative")


@dataclass(frozen=True)
class SensorNoise:
    """noise: standard deviation of a pixel, up to, of full scale in linear light, anew in each frame. blur_px: standard
    deviation of a Gaussian blur, up to, pixels."""

    noise: float = 0.0
    blur_px: float = 0.0

    def __post_init__(self) -> None:
        if not (0 <= self.noise <= 0.5 and 0 <= self.blur_px <= 10):
            raise ValueError("sensor noise must lie within 0..0.5, blur within 0..10 px")


@dataclass(frozen=True)
class PhysicsNoise:
    """Factors on the friction and the mass of the task's bodies, least and greatest."""

    friction: Range = (1.0, 1.0)
    mass: Range = (1.0, 1.0)

    def __post_init__(self) -> None:
        for low, high in (self.friction, self.mass):
            if not 0.05 <= low <= high <= 20:
                raise ValueError("physics factors must be two ascending numbers within 0.05..20")


@dataclass(frozen=True)
class TimingNoise:
    """Delays of an episode in control steps, least and greatest: of what is observed, and of what is done. drop: chance
    that a frame is lost and the one before is seen again."""

    observation: tuple[int, int] = (0, 0)
    action: tuple[int, int] = (0, 0)
    drop: float = 0.0

    def __post_init__(self) -> None:
        for low, high in (self.observation, self.action):
            if not 0 <= low <= high <= 20:
                raise ValueError("delays must be two ascending numbers of steps within 0..20")
        if not 0 <= self.drop <= 0.9:
            raise ValueError("timing drop must lie within 0..0.9")


@dataclass(frozen=True)
class Randomize:
    """background: up to this share of the colours of what lies off the table is replaced by random ones."""

    camera: CameraNoise = field(default_factory=CameraNoise)
    light: LightNoise = field(default_factory=LightNoise)
    sensor: SensorNoise = field(default_factory=SensorNoise)
    physics: PhysicsNoise = field(default_factory=PhysicsNoise)
    timing: TimingNoise = field(default_factory=TimingNoise)
    background: float = 0.0

    def __post_init__(self) -> None:
        if not 0 <= self.background <= 1:
            raise ValueError("background must lie within 0..1")

    @property
    def any(self) -> bool:
        """Whether anything varies at all."""
        return self != Randomize()

    @property
    def looks(self) -> bool:
        """Whether the pictures' cameras or colours vary."""
        return self != Randomize(physics=self.physics, timing=self.timing)
