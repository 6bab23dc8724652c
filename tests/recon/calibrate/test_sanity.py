"""Conventions found by matches: a right rig is never refused, a wrong one is called what it is."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

import cv2
import numpy as np
import pytest

from recon.calibrate.conventions import AS_WRITTEN, BY_NAME, CONVENTIONS, INVERTED, meant
from recon.calibrate.sanity import Agreement, Pair, agreed, agreement, matched, refuse_if_contradicted, scale_warning
from recon.core.errors import CalibrationError
from recon.geometry.camera import Camera, distort_map
from recon.geometry.pose import invert_pose
from recon.geometry.rig import Rig
from tests.recon.calibrate import textured
from tests.recon.fit.tiny import ray_trace, ring_of_cameras

OPENGL, MIRROR = np.diag([1.0, -1, -1, 1]), np.diag([1.0, 1, -1, 1])
CAMERAS = textured.rig(4)


@pytest.fixture(scope="module")
def pictures() -> dict[str, np.ndarray]:
    return textured.plates(CAMERAS)


@pytest.fixture(scope="module")
def pairs(pictures: dict[str, np.ndarray]) -> list[Pair]:
    """Matches, which do not depend on the poses of so few cameras."""
    return matched(CAMERAS, pictures)


def read_as(pairs: list[Pair], cameras: dict[str, Camera]) -> Agreement:
    return agreed([replace(p, first=cameras[p.first.name], second=cameras[p.second.name]) for p in pairs])


def posed(change: Callable[[np.ndarray], np.ndarray]) -> dict[str, Camera]:
    return {name: camera.with_pose(change(camera.cam_from_world)) for name, camera in CAMERAS.items()}


def test_a_right_rig_passes_silently(pairs: list[Pair]) -> None:
    found = agreed(pairs)
    assert found.sure and found.verdict is None
    assert found.share(AS_WRITTEN) > 0.8
    assert found.error < 0.5  # pixels
    refuse_if_contradicted(found, "rig.json")


def distorted(camera: Camera, picture: np.ndarray) -> np.ndarray:
    """The picture as seen through the camera's lens, from that of the same camera without one."""
    ideal = replace(camera, distortion=(0.0,) * 5)
    where = distort_map(camera, ideal) - np.float32(0.5)
    return np.asarray(cv2.remap(picture, where, None, cv2.INTER_CUBIC))


def test_a_lens_with_distortion_is_taken_into_account(pictures: dict[str, np.ndarray]) -> None:
    """Pictures bent by a strong lens fit with it, and not without."""
    bent = {n: replace(c, distortion=(-0.4, 0.1, 0.0, 0.0, 0.0)) for n, c in list(CAMERAS.items())[:2]}
    seen = {n: distorted(c, pictures[n]) for n, c in bent.items()}
    right, wrong = agreement(bent, seen), agreement({n: CAMERAS[n] for n in bent}, seen)
    assert right.error < 0.6 * wrong.error


@pytest.mark.parametrize(
    ("change", "words", "fix"),
    [
        (invert_pose, "look like world_from_camera poses", "--rig-poses inverted;"),
        (lambda t: OPENGL @ t, "camera_from_world poses in OpenGL camera axes", "--rig-poses opengl;"),
        (lambda t: invert_pose(OPENGL @ t), "world_from_camera poses in OpenGL", "--rig-poses inverted-opengl;"),
        (lambda t: MIRROR @ t @ MIRROR, "mirrored camera_from_world poses, in left-handed axes", "right-handed"),
        (lambda t: invert_pose(MIRROR @ t @ MIRROR), "mirrored world_from_camera poses", "right-handed"),
    ],
)
def test_a_wrong_convention_is_named_with_its_fix(
    change: Callable[[np.ndarray], np.ndarray], words: str, fix: str, pairs: list[Pair]
) -> None:
    """On one level and at one distance from their target, inverted cameras stand in one place: the hardest rig."""
    found = read_as(pairs, posed(change))
    with pytest.raises(CalibrationError, match=r"the poses in lab\.yml look like") as caught:
        refuse_if_contradicted(found, "lab.yml")
    assert words in str(caught.value) and fix in str(caught.value)


@pytest.mark.parametrize("name", BY_NAME)
def test_the_named_option_repairs_the_rig(name: str) -> None:
    convention = BY_NAME[name]
    undo = {"inverted-opengl": lambda t: invert_pose(OPENGL @ t), "opengl": lambda t: OPENGL @ t}
    written = posed(undo.get(name, invert_pose if convention == INVERTED else lambda t: t))
    for camera_name, camera in meant(Rig(written), convention).cameras.items():
        np.testing.assert_allclose(camera.cam_from_world, CAMERAS[camera_name].cam_from_world, atol=1e-12)


def test_pictures_that_do_not_match_say_nothing() -> None:
    sizes = {n: (c.height, c.width, 3) for n, c in CAMERAS.items()}
    noise = {n: np.random.default_rng(k).integers(0, 255, size, np.uint8) for k, (n, size) in enumerate(sizes.items())}
    plain = {n: np.full(size, 90, np.uint8) for n, size in sizes.items()}
    for pictures in (noise, plain):
        found = agreement(posed(invert_pose), pictures)
        assert not found.sure and found.verdict is None


def test_an_overlay_in_all_pictures_says_nothing(pictures: dict[str, np.ndarray], pairs: list[Pair]) -> None:
    stamp = np.random.default_rng(0).integers(0, 255, (60, 240, 3), np.uint8)
    stamped = {name: picture.copy() for name, picture in pictures.items()}
    for picture in stamped.values():
        picture[:60, :240] = stamp
    found = agreement(CAMERAS, stamped)
    assert found.verdict is None
    assert found.matches <= agreed(pairs).matches  # what is in the same place everywhere is not counted


def test_a_symmetric_room_seen_by_a_symmetric_ring_is_not_refused() -> None:
    """Every picture of this rig looks like the others: most matches are false, and fit the inverted rig."""
    ring = {camera.name: camera for camera in ring_of_cameras(4)}
    assert agreement(ring, {name: ray_trace(camera, 0.0)[0] for name, camera in ring.items()}).verdict is None


@pytest.mark.parametrize(
    ("counts", "expected"),
    [
        ({AS_WRITTEN: 5, INVERTED: 60}, INVERTED),
        ({AS_WRITTEN: 25, INVERTED: 60}, None),  # not clearly
        ({AS_WRITTEN: 0, INVERTED: 24}, None),  # too few
        ({AS_WRITTEN: 5, INVERTED: 60, CONVENTIONS[1]: 50}, None),  # not alone
        ({AS_WRITTEN: 60, INVERTED: 60}, None),
    ],
)
def test_only_a_clear_case_is_decided(counts: dict, expected: object) -> None:
    found = Agreement(100, {convention: counts.get(convention, 0) for convention in CONVENTIONS}, 0.5)
    assert found.verdict == expected


@pytest.mark.parametrize(("factor", "words"), [(1.0, None), (1000.0, "--rig-unit mm"), (1e-4, "0.000"), (0.0, None)])
def test_an_impossible_scale_is_warned_of(factor: float, words: str | None) -> None:
    cameras = {n: c.with_pose(_scaled(c.cam_from_world, factor)) for n, c in CAMERAS.items()}
    warning = scale_warning(cameras, "x.toml")
    assert (warning is None) if words is None else (warning is not None and words in warning and "x.toml" in warning)


def _scaled(pose: np.ndarray, factor: float) -> np.ndarray:
    scaled = pose.copy()
    scaled[:3, 3] *= factor
    return scaled
