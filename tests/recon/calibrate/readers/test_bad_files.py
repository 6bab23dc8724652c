"""What is wrong with a foreign calibration is said; whatever bytes a file holds, the answer is one clear error."""

from __future__ import annotations

import json
import tempfile
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from recon.calibrate import load_rig
from recon.core.errors import CalibrationError, InputError, ReconError
from tests.recon.calibrate.readers import written

SIZES = {f"cam{k:02d}": (640, 480) for k in range(3)}


def frames(path: Path, change: Callable[[dict[str, Any]], None]) -> Path:
    """A transforms.json, spoilt."""
    data = json.loads(written.nerfstudio(path, written.rig()).read_text())
    change(data)
    path.write_text(json.dumps(data))
    return path


@pytest.mark.parametrize(
    ("change", "message"),
    [
        (lambda d: d["frames"][1].pop("file_path"), "frame 1.*no file_path"),
        (lambda d: d["frames"][1].update(file_path="../../etc/cam01.png"), "may lead outside the capture folder"),
        (lambda d: d["frames"][1].update(file_path="/data/cam01.png"), "may lead outside the capture folder"),
        (lambda d: d["frames"][1].update(camera_model="EQUIRECTANGULAR"), "cam01.*camera_model is EQUIRECTANGULAR"),
        (lambda d: d["frames"][1].update(k4=0.1), "cam01.*its lens uses k4"),
        (lambda d: d["frames"][1].update(fl_x="wide"), "cam01.*fl_x.*table of numbers"),
        (lambda d: d["frames"][1].update(fl_x=-5.0), "cam01.*positive focal lengths"),
        (lambda d: d["frames"][1]["transform_matrix"][2].pop(), r"cam01.*transform_matrix.*regular table"),
        (lambda d: d["frames"][1]["transform_matrix"][0].__setitem__(0, 7.0), "cam01.*not rigid"),
        (lambda d: d["frames"].append(d["frames"][0]), "camera images.*moves"),
        (lambda d: d.update(w=0), "w cannot be used: it is 0"),
        (lambda d: d.update(applied_transform=[[2, 0, 0, 0], [0, 2, 0, 0], [0, 0, 2, 0]]), "applied_transform"),
    ],
)
def test_a_bad_transforms_json(change: Callable[[dict[str, Any]], None], message: str, tmp_path: Path) -> None:
    with pytest.raises(ReconError, match=message):
        load_rig([frames(tmp_path / "transforms.json", change)])


def test_a_mirrored_pose_is_called_that(tmp_path: Path) -> None:
    def mirror(data: dict[str, Any]) -> None:
        data["frames"][2]["transform_matrix"] = (
            np.array(data["frames"][2]["transform_matrix"]) @ np.diag([-1, 1, 1, 1])
        ).tolist()

    with pytest.raises(CalibrationError, match=r"cam02.*its pose is mirrored.*right-handed"):
        load_rig([frames(tmp_path / "transforms.json", mirror)])


TextCase = tuple[Callable[[Path], Path], str, str, str]
TEXTS: list[TextCase] = [
    (lambda p: written.qualisys(p, written.rig()), "?>", '?><!DOCTYPE a [<!ENTITY b "c">]>', "DOCTYPE or an ENTITY"),
    (lambda p: written.qualisys(p, written.rig()), 'skew="0.000000"', 'skew="3"', "camera cam00.*skew"),
    (lambda p: written.qualisys(p, written.rig()), 'r11="', 'q11="', "camera cam00.*<transform> lacks r11"),
    (lambda p: written.qualisys(p, written.rig()), 'x="', 'x="nan', "camera cam00"),
    (lambda p: written.qualisys(p, written.rig()), "</cameras>", "", "it is not XML"),
    (lambda p: written.caliscope(p, written.rig()), "rotation =", "turned =", "camera 0.*no pose.*extrinsic"),
    (lambda p: written.caliscope(p, written.rig()), "translation = [", "translation = [nan, ", "camera 0.*NaN"),
    (lambda p: written.caliscope(p, written.rig()), "size = [640, 480]", "size = [640]", "camera 0: size"),
    (lambda p: written.caliscope(p, written.rig()), "distortions = [", "distortions = [1,", "6 distortion coef"),
    (lambda p: written.by_serial(p, written.rig()), "extrinsics:", "mounting:", "camera cam00.*no pose, only a lens"),
    (lambda p: written.by_serial(p, written.rig()), "extrinsics:", "extrinsics: &a", r"camera cam00|cannot read"),
    (lambda p: written.by_serial(p, written.rig()), "master: false", "m: !!python/object:os.x", "cannot read .*yml:"),
    (lambda p: written.middlebury(p, written.rig((0.0,) * 5)), "3\n", "4\n", "promises 4 pictures and lists 3"),
    (lambda p: written.middlebury(p, written.rig((0.0,) * 5)), "cam01.png", "../cam01.png", "outside the capture"),
    (lambda p: written.middlebury(p, written.rig((0.0,) * 5)), "cam01.png", "cam01.png 1", "22 words, not 23"),
]  # fmt: skip


@pytest.mark.parametrize(("write", "old", "new", "message"), TEXTS)
def test_a_bad_text(write: Callable[[Path], Path], old: str, new: str, message: str, tmp_path: Path) -> None:
    path = write(tmp_path / "calibration.yml")
    text = path.read_text()
    assert old in text
    path.write_text(text.replace(old, new, 1))
    if new.endswith("&a"):
        load_rig([path], SIZES)  # an anchor alone changes nothing; it is an alias that is refused
        path.write_text(path.read_text() + "again: *a\n")
        message = "aliases are not supported"
    with pytest.raises(ReconError, match=message):
        load_rig([path], SIZES)


def test_a_camera_matrix_of_the_wrong_size(tmp_path: Path) -> None:
    folder = written.opencv_files(tmp_path / "y", written.rig())
    path = folder / "cam01.yml"
    path.write_text(path.read_text().replace("rows: 3", "rows: 4", 1))
    with pytest.raises(CalibrationError, match=r"cam01\.yml: camera cam01: K.*4 x 3 entries are 9"):
        load_rig([folder])


def test_pairs_need_both_files(tmp_path: Path) -> None:
    folder = written.pairs(tmp_path / "p", written.rig())
    (folder / "rot_trans_c1.dat").unlink()
    with pytest.raises(CalibrationError, match=r"camera c1.*no file says its R"):
        load_rig([folder], SIZES)


def test_without_recordings_the_picture_size_is_missing(tmp_path: Path) -> None:
    path = written.by_serial(tmp_path / "all.yml", written.rig())
    with pytest.raises(CalibrationError, match=r"does not say the picture size of camera cam00, cam01, cam02"):
        load_rig([path])


def test_a_folder_without_a_calibration(tmp_path: Path) -> None:
    (tmp_path / "a.txt").write_text("hello")
    with pytest.raises(CalibrationError, match=r"no calibration in this folder.*COLMAP.*Qualisys"):
        load_rig([tmp_path])


def test_a_large_file_is_not_read(tmp_path: Path) -> None:
    path = tmp_path / "big.yml"
    with path.open("wb") as file:
        file.write(b"%YAML:1.0\n---\na: 1\n")
        file.truncate(2**31)
    with pytest.raises(ReconError, match=r"not a calibration we know|larger than"):
        load_rig([path])


def test_a_colmap_model_with_bytes_left_over_or_missing(tmp_path: Path) -> None:
    for part in ("cameras", "images"):
        model = written.colmap(tmp_path / part, written.rig())
        data = (model / f"{part}.bin").read_bytes()
        for spoilt, message in ((data + b"x", "1 bytes follow its last entry"), (data[:-1], "ends too early")):
            (model / f"{part}.bin").write_bytes(spoilt)
            with pytest.raises(CalibrationError, match=message):
                load_rig([model / f"{part}.bin"])


def samples() -> dict[str, bytes]:
    """One file of each format, small."""
    rig = written.rig()
    with tempfile.TemporaryDirectory() as name:
        root = Path(name)
        files = {
            "a.json": written.nerfstudio(root / "a.json", rig),
            "a.toml": written.caliscope(root / "a.toml", rig),
            "a.xml": written.qualisys(root / "a.xml", rig),
            "a.yml": written.by_serial(root / "a.yml", rig),
            "cam00.yml": written.opencv_files(root / "y", rig) / "cam00.yml",
            "a_par.txt": written.middlebury(root / "a_par.txt", rig),
            "c0.dat": written.pairs(root / "d", rig) / "c0.dat",
            "images.bin": written.colmap(root / "b", rig) / "images.bin",
            "cameras.bin": root / "b" / "cameras.bin",
            "images.txt": written.colmap(root / "t", rig, text=True) / "images.txt",
            "cameras.txt": root / "t" / "cameras.txt",
        }
        return {name: path.read_bytes() for name, path in files.items()}


SAMPLES = samples()


def read_or_refuse(folder: Path, name: str, data: bytes) -> None:
    for other in ("images.bin", "cameras.bin") if name.endswith(".bin") else ("images.txt", "cameras.txt"):
        (folder / other).write_bytes(SAMPLES[other])
    (folder / name).write_bytes(data)
    try:
        load_rig([folder / name], SIZES)
    except (CalibrationError, InputError) as error:
        assert str(folder) in str(error) and "Traceback" not in str(error)


@pytest.mark.parametrize("name", SAMPLES)
@settings(max_examples=30)
@given(data=st.data())
def test_damaged_files_give_one_clear_error(name: str, data: st.DataObject) -> None:
    whole = SAMPLES[name]
    at = data.draw(st.integers(0, len(whole) - 1))
    junk = data.draw(st.binary(max_size=12))
    kind = data.draw(st.sampled_from(["cut", "overwritten", "inserted", "removed"]))
    spoilt = {
        "cut": whole[:at],
        "overwritten": whole[:at] + junk + whole[at + len(junk) :],
        "inserted": whole[:at] + junk + whole[at:],
        "removed": whole[:at] + whole[at + len(junk) + 1 :],
    }[kind]
    with tempfile.TemporaryDirectory() as folder:
        read_or_refuse(Path(folder), name, spoilt)


@settings(max_examples=60)
@given(st.sampled_from(sorted(SAMPLES)), st.one_of(st.binary(max_size=200), st.text(max_size=200).map(str.encode)))
def test_any_bytes_give_one_clear_error(name: str, data: bytes) -> None:
    with tempfile.TemporaryDirectory() as folder:
        read_or_refuse(Path(folder), name, data)
