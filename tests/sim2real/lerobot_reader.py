"""Run by LeRobot's own interpreter, not by ours: read a data set and print what its reader makes of it, as JSON.

PYTHON lerobot_reader.py FOLDER
"""

from __future__ import annotations

import contextlib
import json
import os
import sys

os.environ["HF_HUB_OFFLINE"] = os.environ["HF_DATASETS_OFFLINE"] = "1"

import torch

# torchvision's wheels belong to one torch each. Beside another one its operators are missing and importing it fails;
# nothing here calls them, so their names are enough.
shim = torch.library.Library("torchvision", "DEF")
for operator in ("nms", "qnms", "roi_align", "roi_pool", "ps_roi_align", "ps_roi_pool", "deform_conv2d"):
    with contextlib.suppress(RuntimeError):
        shim.define(f"{operator}(Tensor x) -> Tensor")
for operator in ("roi_align", "roi_pool", "ps_roi_align", "ps_roi_pool", "deform_conv2d"):
    with contextlib.suppress(RuntimeError):
        shim.define(f"_{operator}_backward(Tensor x) -> Tensor")

import lerobot  # noqa: E402
from lerobot.datasets.lerobot_dataset import LeRobotDataset  # noqa: E402


def main(folder: str) -> None:
    """Read every item in order, and one with a history, as training does."""
    data = LeRobotDataset("local/checked", root=folder, tolerance_s=1e-4)
    keys = [key for key in data.features if key not in data.meta.video_keys]
    items = [data[k] for k in range(len(data))]
    out = {
        "version": lerobot.__version__,
        "episodes": data.num_episodes,
        "frames": len(data),
        "fps": data.fps,
        "cameras": list(data.meta.video_keys),
        "tasks": sorted({item["task"] for item in items}),
        "columns": {key: [item[key].reshape(-1).tolist() for item in items] for key in keys},
        "means": {key: [item[key].mean(dim=(1, 2)).tolist() for item in items] for key in data.meta.video_keys},
        "shapes": {key: list(items[0][key].shape) for key in data.meta.video_keys},
        "stats": {key: sorted(value) for key, value in data.meta.stats.items()},
    }
    steps = {key: [-1 / data.fps, 0.0] for key in ("action", *data.meta.video_keys)}
    history = LeRobotDataset("local/checked", root=folder, tolerance_s=1e-4, delta_timestamps=steps)
    batch = next(iter(torch.utils.data.DataLoader(history, batch_size=4, shuffle=False)))
    out["batch"] = {key: list(batch[key].shape) for key in steps}
    print(json.dumps(out))


if __name__ == "__main__":
    main(sys.argv[1])
