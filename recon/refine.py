"""The stage of a build that sets the given calibration right by the recordings themselves, and tells what moved."""

from __future__ import annotations

import time
from collections.abc import Generator, Mapping
from dataclasses import replace

import numpy as np

from recon.calibrate.refine import Refinement, refine_cameras
from recon.core.events import Event, Message, StageFinished, StageStarted
from recon.fit.data import StoredFrames
from recon.geometry.camera import Camera
from recon.geometry.pose import split_similarity
from recon.inputs import Inputs

PICTURES = 9  # per camera: their median shows little of what moves


def refine_rig(frames: StoredFrames, inputs: Inputs) -> Generator[Event, None, Inputs]:
    """Inputs whose rig is refined; the ideal cameras of `frames` are replaced alike. Deterministic, so never stored."""
    yield StageStarted("rig")
    started = time.monotonic()
    cameras = dict(zip(frames.names, frames.cameras, strict=True))
    pictures = {name: still_picture(frames, index) for index, name in enumerate(frames.names)}
    valid = {name: frames.valid(index) for index, name in enumerate(frames.names)}
    found = refine_cameras(pictures, cameras, valid)
    metrics = {"tracks": float(found.tracks)}
    if np.isfinite(found.before):
        metrics |= {"before_px": found.before, "after_px": found.after}
    for name, moved in found.moved.items():
        metrics |= {f"{name}_mm": moved.millimetres, f"{name}_deg": moved.degrees, f"{name}_focal": moved.focal_percent}
    yield Message("info", _told(found, inputs.metric))
    yield StageFinished("rig", time.monotonic() - started, metrics)
    if not found.moved:
        return inputs
    frames.cameras = [found.cameras[name] for name in frames.names]
    return with_cameras(inputs, cameras, found.cameras)


def with_cameras(inputs: Inputs, before: Mapping[str, Camera], after: Mapping[str, Camera]) -> Inputs:
    """Inputs whose cameras changed as their ideal ones did."""
    rig = dict(inputs.rig.cameras)
    scale, _, _ = split_similarity(inputs.scene_from_rig)
    for name, ideal in before.items():
        rig[name] = carried(rig[name], ideal, after[name], scale)
    refined = replace(inputs.rig, cameras=rig)
    placed = refined.transformed(inputs.scene_from_rig)
    return replace(inputs, rig=refined, cameras={name: placed.cameras[name] for name in inputs.cameras})


def still_picture(frames: StoredFrames, camera: int) -> np.ndarray:
    """uint8 [H, W, 3]: the median of a few frames spread over the recording."""
    count = frames.num_frames(camera)
    chosen = np.unique(np.linspace(0, count - 1, min(PICTURES, count)).astype(int))
    found: np.ndarray = np.median(np.stack([frames.picture(camera, int(k)) for k in chosen]), axis=0)
    return found.astype(np.uint8)


def carried(camera: Camera, ideal: Camera, refined: Camera, scale: float) -> Camera:
    """What `ideal` -> `refined` means for the camera itself, whose lens and world may differ.

    The motion is on the camera's side, cam_from_world <- M cam_from_world, so it is the same in every world but for the
    unit: scale units of `ideal`'s world are one of `camera`'s.
    """
    motion = refined.cam_from_world @ np.linalg.inv(ideal.cam_from_world)
    motion[:3, 3] /= scale
    factor = refined.fx / ideal.fx
    return replace(
        camera, fx=camera.fx * factor, fy=camera.fy * factor, cx=camera.cx + refined.cx - ideal.cx,
        cy=camera.cy + refined.cy - ideal.cy, cam_from_world=motion @ camera.cam_from_world,
    )  # fmt: skip


def _told(found: Refinement, metric: bool) -> str:
    if not np.isfinite(found.before):
        return f"the calibration is used as given: {found.tracks} points matched, too few to judge it"
    if not found.moved:
        return f"the calibration holds to {found.before:.2f} px (median of {found.tracks} matched points)"
    name, most = max(found.moved.items(), key=lambda item: item[1].degrees)
    by = f"{most.millimetres:.1f} mm and " if metric else ""
    return (
        f"the calibration was refined: matched points are {found.after:.2f} px off instead of {found.before:.2f} px; "
        f"camera {name} turned most, by {by}{most.degrees:.2f} degrees"
    )
