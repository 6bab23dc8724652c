"""A board on paper and small pictures of it by known cameras: what the tests of `recon calibrate` look at."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

import cv2
import numpy as np

from recon.calibrate.board import Board
from recon.geometry.camera import Camera, distort_map
from recon.geometry.convert import integer_centres_from_pixels
from recon.geometry.pose import look_at

BOARD = Board("charuco", 5, 7, 0.04, 0.03, "DICT_4X4_50")
PER_SQUARE = 48  # pixels of the print
SIZE = (320, 240)


def paper(board: Board, inverted: bool = False) -> tuple[np.ndarray, np.ndarray]:
    """(grey print with one square of margin, pixels_from_board homography [3, 3])."""
    scale = PER_SQUARE / board.square
    size = (board.columns * PER_SQUARE, board.rows * PER_SQUARE)
    if board.kind == "charuco":
        image = board.printed().generateImage(size)
    elif board.kind == "aprilgrid":
        image = np.full(size[::-1], 255, np.uint8)
        side = round(board.marker * scale)
        for k, (x, y) in enumerate(np.round(board.marker_corners[:, 0, :2] * scale).astype(int)):
            image[y : y + side, x : x + side] = cv2.aruco.generateImageMarker(board.words(), k, side)
    else:
        v, u = np.mgrid[: size[1], : size[0]]
        squares = np.stack([u.ravel() + 0.5, v.ravel() + 0.5], 1) / scale
        image = np.where(board.dark(squares).reshape(size[1], size[0]), 0, 255).astype(np.uint8)
    image = cv2.copyMakeBorder(image, *(PER_SQUARE,) * 4, cv2.BORDER_CONSTANT, value=255)
    shift = PER_SQUARE - 0.5  # cv2 puts the first pixel's centre at (0, 0)
    return 255 - image if inverted else image, np.array([[scale, 0, shift], [0, scale, shift], [0, 0, 1.0]])


def photo(camera: Camera, board: Board, world_from_board: np.ndarray, inverted: bool = False) -> np.ndarray:
    """uint8 [H, W, 3]: the board over grey, through the camera's lens, supersampled, with a little noise."""
    print_, print_from_board = paper(board, inverted)
    ideal = camera.pinhole().scaled(2)
    pose = ideal.cam_from_world @ world_from_board
    K = ideal.K
    K[:2, 2] = integer_centres_from_pixels(K[:2, 2])
    warp = K @ pose[:3][:, [0, 1, 3]] @ np.linalg.inv(print_from_board)
    grey = np.full((ideal.height, ideal.width), 120, np.uint8)
    if pose[2, 3] > 0 and np.linalg.inv(pose)[2, 3] < 0:  # before the camera, face turned to it
        cv2.warpPerspective(
            print_, warp, (ideal.width, ideal.height), grey, cv2.INTER_AREA, borderMode=cv2.BORDER_TRANSPARENT
        )
    small = cv2.resize(cv2.GaussianBlur(grey, (0, 0), 1.0), None, fx=0.5, fy=0.5, interpolation=cv2.INTER_AREA)
    if camera.distorted:
        small = cv2.remap(small, distort_map(camera, camera.pinhole()) - np.float32(0.5), None, cv2.INTER_CUBIC)
    noise = np.random.default_rng(small.size).normal(0, 1.5, small.shape)
    return np.repeat(np.clip(small + noise, 0, 255).astype(np.uint8)[..., None], 3, axis=2)


def rig(
    count: int = 3, focal: float = 330.0, bent: tuple[float, ...] = (0.0,) * 5, lens: str = "brown"
) -> list[Camera]:
    """Cameras on an arc, 0.7 m from where the board is shown."""
    cameras = []
    for k, angle in enumerate(np.linspace(-0.6, 0.6, count)):
        eye = 0.7 * np.array([np.sin(angle), -np.cos(angle), 0.25])
        pose = look_at(eye, np.zeros(3))
        cameras.append(Camera(f"c{k}", *SIZE, focal + 7 * k, focal + 7 * k, 161.0 + k, 119.0, bent, pose, lens))
    return cameras


def carried(count: int, seed: int = 1) -> list[np.ndarray]:
    """world_from_board poses round the origin, facing the arc of cameras, tilted every way."""
    rng = np.random.default_rng(seed)
    upright = np.array([[1.0, 0, 0], [0, 0, 1], [0, -1, 0]])  # board x right, y down, z away from the cameras
    poses = []
    for _ in range(count):
        pose = np.eye(4)
        pose[:3, :3] = cv2.Rodrigues(rng.uniform(-0.5, 0.5, 3))[0] @ upright
        middle = 0.5 * (BOARD.outline[0] + BOARD.outline[2])
        pose[:3, 3] = rng.uniform(-0.06, 0.06, 3) - pose[:3, :3] @ middle
        poses.append(pose)
    return poses


def write_clips(root: Path, pictures: dict[str, Sequence[np.ndarray]]) -> Path:
    """One folder of PNGs per camera."""
    for name, frames in pictures.items():
        (root / name).mkdir(parents=True)
        for k, frame in enumerate(frames):
            cv2.imwrite(str(root / name / f"{k:03d}.png"), cv2.cvtColor(frame, cv2.COLOR_RGB2BGR))
    return root
