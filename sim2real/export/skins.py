"""The Gaussians that leave, by what carries them: the world, a robot link, a body; each in its carrier's frame."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

import torch

from recon.geometry.sh import rgb_to_sh0
from recon.scene.gaussians import RIGID, STATIC, Gaussians
from recon.scene.motion import freeze
from sim2real.export.things import Thing

if TYPE_CHECKING:
    from recon.robot import RobotModel
    from recon.scene.scene import Scene

WORLD_SKIN = "world"
SURFACE_POINTS = 3000  # of a robot that was not reconstructed
RECONSTRUCTED, SAMPLED = "reconstructed", "sampled from the mesh"


@dataclass(frozen=True, eq=False)
class Skin:
    """Static rows in the carrier's frame. kind: 'world', 'link' or 'object'. source: where they come from."""

    name: str
    kind: str
    gaussians: Gaussians
    source: str


def make_skins(scene: Scene, robot: RobotModel, things: list[Thing]) -> dict[str, Skin]:
    """Reconstructed Gaussians of world, links and bodies; links without any are drawn by samples of their meshes.

    A body without meshes cannot move in a simulator: its Gaussians stay in the world, where they are at the start.
    """
    g = scene.gaussians.to("cpu")
    movable = set(robot.links) | {thing.name for thing in things}
    ids = {body.name: body.id for body in scene.bodies}
    rows = {name: (g.kind == RIGID) & (g.object_id == number) for name, number in ids.items()}
    still = g.kind == STATIC
    stuck = [name for name in ids if name not in movable and bool(rows[name].any())]
    world = [_plain(g.select(still))]
    poses = {body.id: body.pose_at(scene.time_range[0]) for body in scene.bodies}
    world += [_plain(freeze(g.select(rows[name]), poses, None)) for name in stuck]
    skins = {WORLD_SKIN: Skin(WORLD_SKIN, "world", Gaussians.concat(world), RECONSTRUCTED)}
    sampled = _sampled(robot)
    for name in robot.links:
        if name in ids and bool(rows[name].any()):
            skins[name] = Skin(name, "link", _plain(g.select(rows[name])), RECONSTRUCTED)
        elif name in sampled:
            skins[name] = Skin(name, "link", sampled[name], SAMPLED)
    for thing in things:
        if bool(rows[thing.name].any()):
            skins[thing.name] = Skin(thing.name, "object", _plain(g.select(rows[thing.name])), RECONSTRUCTED)
    return skins


def _plain(g: Gaussians) -> Gaussians:
    """The rows as static ones, whatever they were."""
    columns = (g.means, g.log_scales, g.quats, g.logit_opacities, g.sh)
    return Gaussians.static(*(column.detach().contiguous() for column in columns))


def _sampled(robot: RobotModel) -> dict[str, Gaussians]:
    from recon.robot import surface_gaussians

    made = {}
    for name, s in surface_gaussians(robot, SURFACE_POINTS).items():
        arrays = (s.means, s.log_scales, s.quats, s.logit_opacities, rgb_to_sh0(s.colours)[:, None])
        made[name] = Gaussians.static(*(torch.as_tensor(a, dtype=torch.float32, device="cpu") for a in arrays))
    return made


def write_skins(skins: dict[str, Skin], folder: Path, names: dict[str, str], suffix: str = ".ply") -> dict[str, str]:
    """One file per carrier in `folder`, named by `names`; returns carrier -> file name. suffix: '.ply' or '.spz'."""
    from recon.scene.formats.ply import write_ply
    from recon.scene.formats.spz import write_spz

    folder.mkdir(parents=True, exist_ok=True)
    files = {}
    for name, skin in skins.items():
        if len(skin.gaussians):
            files[name] = names[name] + suffix
            (write_ply if suffix == ".ply" else write_spz)(skin.gaussians, folder / files[name])
    return files
