"""What a fit may be told, with the defaults that `recon build` uses."""

from __future__ import annotations

from dataclasses import dataclass, field

from recon.core.errors import UsageError


@dataclass(frozen=True)
class LearningRates:
    """Adam steps per iteration; positions are multiplied by the scene's extent in metres."""

    means: float = 1.6e-4
    log_scales: float = 5e-3
    quats: float = 1e-3
    logit_opacities: float = 3e-2
    sh: float = 2.5e-3
    sh_rest: float = 0.05  # multiple of it for the coefficients above degree 0
    time_centers: float = 1e-3
    log_durations: float = 5e-3
    velocities: float = 1.6e-3


LIMITS: tuple[tuple[str, float, float], ...] = (
    ("budget", 1, 10_000_000),
    ("budget_residual", 0, 10_000_000),
    ("budget_robot", 0, 1_000_000),
    ("sh_degree", 0, 3),
    ("iterations_static", 0, 10_000_000),
    ("iterations_joint", 0, 10_000_000),
    ("patch", 0, 32768),
    ("coarse_share", 0, 1),
    ("ssim_weight", 0, 1),
    ("foreground_weight", 0, 1000),
    ("foreground_share", 0, 1),
    ("depth_weight", 0, 1000),
    ("opacity_penalty", 0, 1000),
    ("scale_penalty", 0, 1000),
    ("sh_penalty", 0, 1000),
    ("dropout", 0, 0.9),
    ("noise", 0, 1e9),
    ("relocate_every", 1, 10_000_000),
    ("relocate_from", 0, 10_000_000),
    ("relocate_share", 0, 1),
    ("min_opacity", 0, 0.5),
    ("keyframe_gap_s", 1e-3, 60),
    ("checkpoint_every", 1, 10_000_000),
)


@dataclass(frozen=True)
class FitSettings:
    """One fit: a static stage on the plates, then a joint stage on the frames.

    budget: number of static Gaussians; budget_residual: number of residual ones, present only when something moves;
    budget_robot: number on the links of a known robot, 0 to leave the robot to the residual ones.
    Iterations are fixed numbers, never a time limit, so that a resumed fit equals an undisturbed one.
    """

    seed: int = 0
    budget: int = 60_000
    budget_residual: int = 40_000
    budget_robot: int = 12_000
    sh_degree: int = 2
    iterations_static: int = 3000
    iterations_joint: int = 11000
    patch: int = 256  # pixels, side of a training patch at full resolution; 0 trains on whole pictures
    coarse_share: float = 0.3  # of the static iterations, at half resolution
    ssim_weight: float = 0.2
    foreground_weight: float = 3.0  # of pixels where something moves
    foreground_share: float = 0.7  # of the joint iterations whose patch is placed where something moves
    depth_weight: float = 0.1  # of the difference to the depth prior, in inverse depth times the median depth
    opacity_penalty: float = 0.01
    scale_penalty: float = 0.01
    sh_penalty: float = 5.0  # of squared colour coefficients above degree 0: colours that one camera alone has seen
    dropout: float = 0.5  # largest share of the Gaussians that a static iteration leaves out
    noise: float = 5e4  # exploration noise, times the learning rate of the means; 0 turns it off
    relocate_every: int = 100
    relocate_from: int = 300
    relocate_share: float = 0.05  # of the rows, at most, per relocation
    min_opacity: float = 0.005
    keyframe_gap_s: float = 0.1  # between the hulls that seed the residual set
    refine_rig: bool = True  # set the given calibration right by matches, where that clearly helps
    refine_robot: bool = True  # set a known robot's base (and joints) right by its outline in the pictures
    bodies: bool = True  # find the things that move as one and follow them; --bodies asks for it too
    colour: bool = True
    rates: LearningRates = field(default_factory=LearningRates)
    checkpoint_every: int = 1000

    def checked(self) -> FitSettings:
        """Itself; UsageError for a value that cannot be meant."""
        for name, low, high in LIMITS:
            value = getattr(self, name)
            if not low <= value <= high:
                raise UsageError(f"fit.{name} is {value}", why=f"it must lie between {low:g} and {high:g}")
        return self
