"""A path-traced recording of a workstation: the given rig is imperfect, all is known. Only this reads `truth/`."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import av
import cv2
import numpy as np

from recon.core.files import read_json
from recon.geometry.pose import carried
from recon.geometry.rig import rig_from_json
from recon.scene.folder import load_scene
from scripts.bench.alignment import Alignment, align, poses, write_moved
from scripts.bench.clocks import found_clocks, true_times
from scripts.bench.command import recon
from scripts.bench.links import base_errors, link_iou, true_masks
from scripts.bench.pictures import Regions
from scripts.bench.surfaces import score_meshes
from scripts.bench.tracks import follow

TABLE_Z = (-0.02, 0.6)  # metres
OUTLINED = ("cam00", "cam05")  # train cameras with true masks


class Bench01:
    """How it is built, drawn and scored."""

    def __init__(self, root: Path) -> None:
        self.root, self.known = root, root / "truth"
        self.build = ["--videos", str(root / "cams"), "--rig", str(root / "rig.json")]
        self.rig = self._json("rig_true.json")
        self.cameras = list(poses(self.rig, "test"))

    def _json(self, name: str) -> Any:
        return json.loads((self.known / name).read_text())

    def alignment(self, scene: Path) -> Alignment:
        """From the true world to that of the rig the scene was built with (as refined)."""
        return align(poses(self.rig, "train"), poses(read_json(scene / "rig.json"), "train"))

    def render(self, scene: Path, renders: Path) -> None:
        """Draw the test cameras from where they truly stood, moved into the scene's rig."""
        moved = renders.with_name("rig_moved.json")
        write_moved(self.rig, self.alignment(scene).found_from_true, moved)
        cams = ["--cams", ",".join(self.cameras), "--videos", str(self.root / "test")]
        recon("render", str(scene), "--rig", str(moved), *cams, "--out", str(renders), "--no-depth")

    def truth(self, camera: str) -> np.ndarray:
        """uint8 [F, H, W, 3]."""
        with av.open(str(self.root / "test" / f"{camera}.mp4")) as container:
            return np.stack([f.to_ndarray(format="rgb24") for f in container.decode(video=0)])

    def regions(self, camera: str) -> Regions:
        """The table's neighbourhood, and robot and objects."""
        masks = true_masks(self.known / "masks", camera, self._json("masks/ids.json")["ids"])
        return {
            "workspace_psnr_cc": self._workspace(camera),
            "fg_psnr": {frame: mask > 0 for frame, mask in masks},
        }

    def score(self, scene: Path, mesh: bool) -> dict[str, object]:
        """Everything that is not a picture; mesh: run `recon mesh` too."""
        alignment = self.alignment(scene)
        loaded = load_scene(scene)
        found_from_true = alignment.found_from_true
        scene_from_true = loaded.scene_from_rig @ found_from_true
        timing = self._json("timing.json")
        clocks = found_clocks(scene, timing)
        result: dict[str, object] = dict(alignment.scores())
        base = np.array(self._json("robot_base.json")["world_from_base"])
        result |= base_errors(loaded.rig, found_from_true, base)
        result |= {
            "cam05_lag_error_ms": 1000.0 * abs(clocks.lag_errors["cam05"]),
            "lag_error_ms_max": 1000.0 * max(map(abs, clocks.lag_errors.values())),
        }
        if clocks.robot_error is not None:
            result["robot_clock_error_ms"] = 1000.0 * abs(clocks.robot_error)
        cameras = rig_from_json(self.rig, "rig_true.json").transformed(scene_from_true).cameras
        ids = self._json("masks/ids.json")["ids"]
        links = [value for name, value in ids.items() if name.startswith("link:")]
        masks = {
            name: {frame: np.isin(mask, links) for frame, mask in true_masks(self.known / "masks", name, ids)}
            for name in (*OUTLINED, *self.cameras)
        }
        times = {name: true_times(timing, name) + clocks.shift for name in masks}
        result |= link_iou(loaded, cameras, masks, times)
        rigid = carried(scene_from_true, np.eye(4))
        scores, followed = follow(scene, self.known, rigid, clocks.shift)
        result |= scores
        if mesh:
            seconds = recon("mesh", str(scene))
            train = [cameras[name] for name in poses(self.rig, "train")]
            result |= score_meshes(scene, self.known, followed, train) | {"mesh_seconds": seconds}
        return result

    def _workspace(self, camera: str) -> dict[int, np.ndarray]:
        """Frame -> bool [H, W]: pixels whose true point lies over the table, -0.02 <= z <= 0.6 m."""
        entry = self.rig["cameras"][camera]
        K = np.array([[entry["fx"], 0, entry["cx"] - 0.5], [0, entry["fy"], entry["cy"] - 0.5], [0, 0, 1.0]])
        lens = np.array([entry["distortion"][k] for k in ("k1", "k2", "p1", "p2")])
        world_from_cam = np.linalg.inv(np.array(entry["cam_from_world"]))
        table = self._table()
        found = {}
        for path in sorted((self.known / "depth" / camera).glob("*.png")):
            depth = cv2.imread(str(path), cv2.IMREAD_UNCHANGED).astype(np.float64) / 1000.0
            v, u = np.mgrid[: depth.shape[0], : depth.shape[1]].astype(np.float64)
            rays = cv2.undistortPoints(np.stack([u.ravel(), v.ravel()], 1)[:, None], K, lens)[:, 0]
            local = np.concatenate([rays, np.ones((len(rays), 1))], 1) * depth.reshape(-1, 1)
            world = local @ world_from_cam[:3, :3].T + world_from_cam[:3, 3]
            over = (world[:, :2] >= table[0]).all(1) & (world[:, :2] <= table[1]).all(1)
            over &= (world[:, 2] >= TABLE_Z[0]) & (world[:, 2] <= TABLE_Z[1]) & (depth.ravel() > 0)
            found[int(path.stem)] = over.reshape(depth.shape)
        return found

    def _table(self) -> tuple[np.ndarray, np.ndarray]:
        """Corners (low, high) of the table top, metres."""
        table = self._json("generation.json")["config"]["table"]
        center, half = np.array(table["center"]), np.array(table["size"]) / 2
        return center - half, center + half
