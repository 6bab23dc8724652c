"""The MuJoCo folder with `splats.npz` beside it, in the arrays that MuJoCo Warp 4 ray-traces."""

from __future__ import annotations

import io
import zipfile
from pathlib import Path

import numpy as np

from recon.core.files import write_bytes
from recon.geometry.sh import sh0_to_rgb
from recon.scene.formats.splats import unit
from sim2real.export import mujoco
from sim2real.export.cargo import Cargo
from sim2real.export.folder import copy_scripts, write_splats
from sim2real.export.header import write_header
from sim2real.export.skins import WORLD_SKIN

ABOUT = "the MuJoCo folder with its Gaussians as arrays, for MuJoCo Warp 4"
LOSSES = (
    "view-dependent colour: MuJoCo Warp knows one colour per Gaussian",
    "moving Gaussians by themselves: links and bodies carry theirs when the script hands their poses over",
    "a camera's own colours",
)
HOW_TO_OPEN = "python {out}/mjwarp_scene.py"


def write(cargo: Cargo, folder: Path) -> None:
    """Write everything into the (staging) folder."""
    mujoco.write(cargo, folder)
    carriers = [WORLD_SKIN, *(name for name in cargo.skins if name != WORLD_SKIN)]
    columns: dict[str, list[np.ndarray]] = {name: [] for name in ("position", "rotation", "scale", "rgba", "group")}
    for number, name in enumerate(carriers):
        g = cargo.skins[name].gaussians
        rgb = np.clip(sh0_to_rgb(g.sh[:, 0].numpy()), 0, 1)
        opacity = g.logit_opacities.sigmoid().numpy()[:, None]
        columns["position"].append(g.means.numpy())
        columns["rotation"].append(unit(g.quats.numpy()))
        columns["scale"].append(g.log_scales.exp().numpy())
        columns["rgba"].append(np.concatenate([rgb, opacity], axis=1).astype(np.float32))
        columns["group"].append(np.full(len(g), number, np.int32))
    write_npz(folder / "splats.npz", {name: np.concatenate(parts) for name, parts in columns.items()})
    write_header(cargo, folder, write_splats(cargo, folder), splat_groups=carriers)
    copy_scripts(folder, "mjwarp_scene.py", "draw.py")


def write_npz(path: Path, arrays: dict[str, np.ndarray]) -> None:
    """An .npz with the same bytes every time: np.savez stamps the hour into it."""
    whole = io.BytesIO()
    with zipfile.ZipFile(whole, "w", zipfile.ZIP_STORED) as archive:
        for name, array in arrays.items():
            one = io.BytesIO()
            np.lib.format.write_array(one, np.ascontiguousarray(array), allow_pickle=False)
            archive.writestr(zipfile.ZipInfo(f"{name}.npy", (1980, 1, 1, 0, 0, 0)), one.getvalue())
    write_bytes(path, whole.getvalue())
