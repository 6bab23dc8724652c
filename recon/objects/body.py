"""A body that was found: its surface, its track, and what each pose is worth."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import torch

from recon.geometry.quaternion import matrix_to_quat
from recon.geometry.sh import rgb_to_sh0
from recon.objects.splats import RADIUS, Splats
from recon.scene.gaussians import RIGID, Gaussians
from recon.scene.motion import Track
from recon.scene.scene import Body


@dataclass(frozen=True)
class FoundBody:
    """splats: in the body's frame, whose origin is its middle and whose axes are the world's in its first rest.

    times [T] s, poses [T, 4, 4] world from body; position_sigma [T] m and rotation_sigma [T] rad, one standard
    deviation along the worst axis; visible [T]: share of the body's pixels that cameras saw (1 at its first rest).
    explained: share of the differences to the background that the moving body accounts for.
    """

    name: str
    splats: Splats
    times: np.ndarray
    poses: np.ndarray
    position_sigma: np.ndarray
    rotation_sigma: np.ndarray
    visible: np.ndarray
    explained: float

    def track(self) -> Track:
        """The poses as a scene's track."""
        matrices = torch.from_numpy(self.poses)
        positions = matrices[:, :3, 3].float().contiguous()
        return Track(self.times, positions, matrix_to_quat(matrices[:, :3, :3]).float())

    def pose_at(self, t: float) -> np.ndarray:
        """World from body [4, 4] at t [s]."""
        rotation, position, _ = self.track().at(t)
        pose = np.eye(4)
        pose[:3, :3], pose[:3, 3] = rotation.numpy(), position.numpy()
        return pose

    def spans(self) -> list[tuple[float, float]]:
        """Seconds from..to in which the body was seen, gaps of one knot closed over."""
        gap = 2.5 * float(np.median(np.diff(self.times))) if len(self.times) > 1 else 0.0
        found: list[tuple[float, float]] = []
        for t in self.times[self.visible >= 0.1].tolist():
            if found and t - found[-1][1] <= gap:
                found[-1] = (found[-1][0], t)
            else:
                found.append((t, t))
        return found

    def summary(self) -> dict[str, Any]:
        """What a report tells of the body, as JSON values."""
        path = np.linalg.norm(np.diff(self.poses[:, :3, 3], axis=0), axis=1).sum() if len(self.poses) > 1 else 0.0
        return {
            "moved_mm": float(1000 * np.linalg.norm(self.poses[:, :3, 3] - self.poses[0, :3, 3], axis=1).max()),
            "path_mm": float(1000 * path),
            "sigma_mm": float(1000 * np.median(self.position_sigma)),
            "sigma_deg": float(np.degrees(np.median(self.rotation_sigma))),
            "visible": float(np.mean(self.visible)),
            "seen_s": [[float(a), float(b)] for a, b in self.spans()],
            "explained": float(self.explained),
            "sigmas": [[float(a), float(b)] for a, b in zip(self.position_sigma, self.rotation_sigma, strict=True)],
        }


def scene_body(found: FoundBody, number: int) -> Body:
    """The body of a scene, with the object_id `number`."""
    return Body(found.name, number, "object", None, found.track())


def body_gaussians(found: FoundBody, number: int, sh_degree: int) -> Gaussians:
    """Its surface as rigid Gaussians, each in the body's frame."""
    splats = found.splats
    count = len(splats.points)
    sh = torch.zeros(count, (sh_degree + 1) ** 2, 3, device="cpu")
    sh[:, 0] = rgb_to_sh0(torch.from_numpy(splats.colours.astype(np.float32)))
    quats = torch.zeros(count, 4, device="cpu")
    quats[:, 0] = 1.0
    table = Gaussians.static(
        torch.from_numpy(splats.points.astype(np.float32)),
        torch.full((count, 3), float(np.log(RADIUS * splats.size)), device="cpu"),
        quats,
        torch.logit(torch.from_numpy(splats.opacities.astype(np.float32)).clamp(0.01, 0.99)),
        sh,
    )
    object_id, kind = torch.full_like(table.object_id, number), torch.full_like(table.kind, RIGID)
    return replace(table, object_id=object_id, kind=kind)
