"""What a fit reads: undistorted frames, masks and times of every training camera, never all in memory at once."""

from __future__ import annotations

from typing import Protocol

import numpy as np

from recon.capture.store import FrameStore
from recon.geometry.camera import Camera


class Frames(Protocol):
    """Frames of the training cameras in their ideal (undistorted) pixel grids.

    Cameras are numbered 0..C-1 in the order of `names`; frames of a camera 0..T_c-1 in the order of `times`.
    """

    names: list[str]
    cameras: list[Camera]  # ideal pinhole cameras
    times: list[np.ndarray]  # [T_c] seconds on the common clock, per camera
    masks_are_whole: bool  # whether masks, where there are any, cover everything that moves

    def num_frames(self, camera: int) -> int:
        """T_c."""
        ...

    def picture(self, camera: int, frame: int) -> np.ndarray:
        """uint8 [H, W, 3] RGB."""
        ...

    def mask(self, camera: int, frame: int) -> np.ndarray | None:
        """bool [H, W], True where a given mask covers something that moves; None without masks."""
        ...

    def valid(self, camera: int) -> np.ndarray:
        """bool [H, W]: pixels of the ideal grid that the real picture covers."""
        ...


class StoredFrames:
    """`Frames` over the frames that `recon.capture.store` keeps on disk."""

    def __init__(self, store: FrameStore) -> None:
        self.store = store
        self.names = list(store.cameras)
        self.cameras = [store.cameras[name].camera for name in self.names]
        self.masks_are_whole = True
        self.times = [store.cameras[name].times for name in self.names]

    def num_frames(self, camera: int) -> int:
        """T_c."""
        return self.store.num_frames(self.names[camera])

    def picture(self, camera: int, frame: int) -> np.ndarray:
        """uint8 [H, W, 3] RGB."""
        return self.store.read(self.names[camera], frame)

    def mask(self, camera: int, frame: int) -> np.ndarray | None:
        """bool [H, W], or None without masks."""
        found = self.store.read_mask(self.names[camera], frame)
        return None if found is None else found > 0

    def valid(self, camera: int) -> np.ndarray:
        """bool [H, W]."""
        return self.store.cameras[self.names[camera]].valid
