"""Bad input is refused at the command line before the long work, and the message says what, where and what to do."""

from __future__ import annotations

import os
import resource
import shutil
import signal
import subprocess
from collections.abc import Callable
from pathlib import Path
from typing import Any

import av
import cv2
import numpy as np
import pytest
import torch

from recon.capture.video import VideoFile, write_mp4
from recon.core.errors import InputError
from recon.core.files import read_json, write_json
from recon.scene.formats.ply import read_ply, write_ply
from recon.scene.gaussians import Gaussians
from tests.cli.commands import LONG_STAGES, Outcome, here, obey_permissions, process

Capsys = pytest.CaptureFixture[str]


def arguments(recording: Path, *more: str | Path) -> list[str | Path]:
    return ["build", "--videos", recording / "cams", "--out", recording / "scene", "--console", "json", *more]


def refused(run: Outcome, recording: Path, code: int, *words: str) -> None:
    """It stopped with this exit code and these words, before the long work, and nothing was published."""
    assert run.code == code, run.errors
    for word in words:
        assert word in run.text, run.text
    assert run.error["fix"] or run.error["why"] or "no such" in run.text, "it does not say why or what to do"
    assert not run.stages & LONG_STAGES
    assert not (recording / "scene").exists()


def edit_rig(recording: Path, change: Callable[[dict[str, Any]], None]) -> None:
    rig = read_json(recording / "rig.json")
    change(rig)
    write_json(recording / "rig.json", rig)


def test_a_missing_video(recording: Path, capsys: Capsys) -> None:
    (recording / "cams" / "c2.mp4").unlink()
    refused(here(capsys, *arguments(recording)), recording, 3, "camera c2", "without a recording", "--cams c0,c1,c3")


def test_a_missing_folder_of_videos(recording: Path, capsys: Capsys) -> None:
    run = here(capsys, "build", "--videos", recording / "none", "--out", recording / "scene", "--console", "json")
    refused(run, recording, 3, str(recording / "none"))


def test_a_folder_without_videos(recording: Path, capsys: Capsys) -> None:
    for video in (recording / "cams").iterdir():
        video.unlink()
    refused(here(capsys, *arguments(recording)), recording, 3, str(recording / "cams"))


def test_an_unreadable_video(recording: Path, capsys: Capsys) -> None:
    (recording / "cams" / "c1.mp4").write_text("not a video")
    refused(here(capsys, *arguments(recording)), recording, 3, "c1.mp4", "cannot be opened as a video")


def test_a_video_cut_off_in_its_frames(recording: Path, capsys: Capsys) -> None:
    path = recording / "cams" / "c1.mp4"  # its index is at its start
    os.truncate(path, path.stat().st_size - 20)
    refused(here(capsys, *arguments(recording)), recording, 3, "c1.mp4", "truncated at frame 5", "promises 6 frames")


def test_a_video_cut_off_in_its_first_frame(recording: Path, capsys: Capsys) -> None:
    path = recording / "cams" / "c1.mp4"
    os.truncate(path, path.stat().st_size // 2)
    refused(here(capsys, *arguments(recording)), recording, 3, "c1.mp4", "no video frame can be read", "--cams")


def test_a_video_cut_off_before_its_index(recording: Path, capsys: Capsys) -> None:
    path = recording / "cams" / "c1.mp4"
    index_at_the_end(path)
    os.truncate(path, path.stat().st_size // 2)
    run = here(capsys, *arguments(recording))
    refused(run, recording, 3, "c1.mp4", "cannot be opened as a video", "cut off has no index")


def index_at_the_end(path: Path) -> None:
    """Rewrite an mp4 as cameras record it: its index last."""
    other = path.with_suffix(".tmp.mp4")
    with av.open(str(path)) as source, av.open(str(other), "w") as target:
        stream = target.add_stream_from_template(source.streams.video[0])
        for packet in source.demux(source.streams.video[0]):
            if packet.dts is not None:
                packet.stream = stream
                target.mux(packet)
    other.replace(path)


def test_a_black_camera(recording: Path, capsys: Capsys) -> None:
    write_mp4(recording / "cams" / "c3.mp4", (np.zeros((48, 64, 3), np.uint8) for _ in range(6)), 10.0)
    refused(here(capsys, *arguments(recording)), recording, 3, "camera c3 is black", "frame 0", "lens cap", "--cams")


def test_a_calibration_that_names_cameras_that_do_not_exist(recording: Path, capsys: Capsys) -> None:
    edit_rig(recording, lambda rig: rig["cameras"].update(ghost=rig["cameras"]["c0"]))
    run = here(capsys, *arguments(recording))
    refused(run, recording, 3, "camera ghost", "without a recording", "recordings found: c0, c1, c2, c3")


def test_a_calibration_that_lacks_cameras(recording: Path, capsys: Capsys) -> None:
    edit_rig(recording, lambda rig: [rig["cameras"].pop(name) for name in ("c1", "c3")])
    run = here(capsys, *arguments(recording))
    refused(run, recording, 3, "2 calibrated cameras", "at least 3", "without calibration: c1, c3")


def test_a_camera_without_calibration_is_left_out_loudly(recording: Path, capsys: Capsys) -> None:
    edit_rig(recording, lambda rig: rig["cameras"].pop("c3"))
    shutil.copyfile(recording / "cams" / "c0.mp4", recording / "cams" / "c1.mp4")  # stops it after the check
    run = here(capsys, *arguments(recording))
    warnings = [e["text"] for e in run.events if e["event"] == "Message" and e["level"] == "warning"]
    assert any("LEFT OUT: camera c3" in text for text in warnings)
    assert run.code == 3


def test_two_identical_cameras(recording: Path, capsys: Capsys) -> None:
    shutil.copyfile(recording / "cams" / "c0.mp4", recording / "cams" / "c2.mp4")
    run = here(capsys, *arguments(recording))
    refused(run, recording, 3, "cameras c0 and c2 show the same pictures", "copied twice")


def test_fewer_than_three_cameras(recording: Path, capsys: Capsys) -> None:
    run = here(capsys, *arguments(recording, "--cams", "c0,c1"))
    refused(run, recording, 3, "2 calibrated cameras", "at least 3 are needed")


def test_an_unknown_camera_asked_for(recording: Path, capsys: Capsys) -> None:
    run = here(capsys, *arguments(recording, "--cams", "c0,c1,c22"))
    refused(run, recording, 3, "no camera 'c22'", "Did you mean 'c2'?")


def test_no_overlap_in_time(recording: Path, capsys: Capsys) -> None:
    pictures = recording / "cams" / "c1"
    pictures.mkdir()
    video = VideoFile(recording / "cams" / "c1.mp4")
    rows = ["file,time_s"]
    for k, picture in video.frames():
        cv2.imwrite(str(pictures / f"{k:06d}.png"), picture[..., ::-1])
        rows.append(f"{k:06d}.png,{100 + 0.1 * k}")
    video.close()
    (pictures / "timestamps.csv").write_text("\n".join(rows) + "\n")
    (recording / "cams" / "c1.mp4").unlink()
    run = here(capsys, *arguments(recording))
    refused(run, recording, 3, "do not overlap in time", "c1", "starts at 100.000 s", "clock offsets")


@pytest.mark.parametrize("number", ["NaN", "Infinity", "1e999"])
def test_a_pose_that_is_not_finite(recording: Path, capsys: Capsys, number: str) -> None:
    edit_rig(recording, lambda rig: rig["cameras"]["c1"]["cam_from_world"][0].__setitem__(3, 12345.5))
    text = (recording / "rig.json").read_text()
    assert "12345.5" in text
    (recording / "rig.json").write_text(text.replace("12345.5", number))
    run = here(capsys, *arguments(recording))
    refused(run, recording, 3, "rig.json", "not valid JSON", number if number != "1e999" else "does not fit")


def test_a_pose_that_is_not_rigid(recording: Path, capsys: Capsys) -> None:
    def stretch(rig: dict[str, Any]) -> None:
        pose = np.array(rig["cameras"]["c1"]["cam_from_world"])
        pose[:3, :3] *= 1.5
        rig["cameras"]["c1"]["cam_from_world"] = pose.tolist()

    edit_rig(recording, stretch)
    refused(here(capsys, *arguments(recording)), recording, 4, "rig.json", "c1", "rigid")


def test_a_mirrored_pose(recording: Path, capsys: Capsys) -> None:
    def mirror(rig: dict[str, Any]) -> None:
        rig["cameras"]["c2"]["cam_from_world"][0] = [-x for x in rig["cameras"]["c2"]["cam_from_world"][0]]

    edit_rig(recording, mirror)
    refused(here(capsys, *arguments(recording)), recording, 4, "rig.json", "c2")


def test_a_picture_size_that_differs_from_the_calibration(recording: Path, capsys: Capsys) -> None:
    edit_rig(recording, lambda rig: rig["cameras"]["c1"].update(width=128, height=96))
    run = here(capsys, *arguments(recording))
    refused(run, recording, 3, "c1.mp4", "64x48", "calibration is for 128x96")


@pytest.mark.parametrize("key", ["file", "joint_log"])
def test_a_path_that_leaves_the_capture_folder(recording: Path, capsys: Capsys, key: str) -> None:
    robot = {"file": "robot.xml", "format": "MJCF", "joint_log": "joints.csv", key: "../../secret"}
    edit_rig(recording, lambda rig: rig.update(robot=robot))
    run = here(capsys, *arguments(recording))
    refused(run, recording, 4, "rig.json", "../../secret", "inside the folder of the rig file")


def test_a_link_that_leaves_the_capture_folder(recording: Path, capsys: Capsys) -> None:
    outside = recording.parent / "outside.mp4"
    (recording / "cams" / "c1.mp4").rename(outside)
    (recording / "cams" / "c1.mp4").symlink_to(outside)
    run = here(capsys, *arguments(recording))
    refused(run, recording, 3, "c1.mp4", "a link leads outside the folder")


def test_no_calibration_lists_what_is_accepted(recording: Path, capsys: Capsys) -> None:
    (recording / "rig.json").unlink()
    run = here(capsys, *arguments(recording))
    refused(run, recording, 4, "no calibration found", "--rig", "rig.json", "train_meta.json")


def test_a_calibration_of_an_unknown_kind(recording: Path, capsys: Capsys) -> None:
    write_json(recording / "rig.json", {"frames": []})
    refused(here(capsys, *arguments(recording)), recording, 4, "not a calibration we know", "train_meta.json")


def test_a_misspelt_field_of_the_calibration(recording: Path, capsys: Capsys) -> None:
    edit_rig(recording, lambda rig: rig["cameras"]["c0"].update(distorsion=rig["cameras"]["c0"].pop("distortion")))
    refused(here(capsys, *arguments(recording)), recording, 4, "distorsion", "Did you mean 'distortion'?")


def test_a_folder_that_is_no_scene_is_not_replaced(recording: Path, capsys: Capsys) -> None:
    (recording / "scene").mkdir()
    (recording / "scene" / "diary.txt").write_text("precious")
    run = here(capsys, *arguments(recording, "--overwrite"))
    assert run.code == 2 and "is not a scene" in run.text
    assert (recording / "scene" / "diary.txt").read_text() == "precious"


@pytest.mark.parametrize(
    ("option", "value", "code", "word"),
    [
        ("--backend", "nosuch", 2, "nosuch"),
        ("--device", "gpu", 2, "unknown device 'gpu'"),
        ("--fps", "0", 3, "--fps 0"),
        ("--masks", "no-such-folder", 3, "no-such-folder"),
        ("--robot", "no-such.xml", 3, "no-such.xml"),
        ("--joints", "no-such.csv", 3, "no-such.csv"),
        ("--fit.sh-degree", "7", 2, "sh_degree"),
        ("--fit.budget", "-3", 2, "budget"),
        ("--fit.iterations-static", "-3", 2, "iterations_static"),
    ],
)
def test_an_option_that_cannot_be_meant(
    recording: Path, capsys: Capsys, option: str, value: str, code: int, word: str
) -> None:
    short = ["--fit.iterations-static", "1", "--fit.iterations-joint", "0", "--fit.budget", "10"]
    refused(here(capsys, *arguments(recording, *short, option, value)), recording, code, word)


def test_an_output_below_a_file(recording: Path, capsys: Capsys) -> None:
    (recording / "file").write_text("in the way")
    out = recording / "file" / "scene"
    run = here(capsys, "build", "--videos", recording / "cams", "--out", out, "--console", "json")
    refused(run, recording, 6, "cannot write", str(recording / "file"))


def small_files() -> None:
    """Let no file grow over 20 kB, as on a full disk."""
    signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
    resource.setrlimit(resource.RLIMIT_FSIZE, (20_000, 20_000))


def test_a_full_disk(recording: Path) -> None:
    run = process(*arguments(recording), before=small_files)
    refused(run, recording, 6, "cannot write", str(recording), "no room left", "Free some space")


def test_a_full_file_system(recording: Path, capsys: Capsys) -> None:
    disk = recording / "disk"
    disk.mkdir()
    if subprocess.run(["mount", "-t", "tmpfs", "-o", "size=64k", "tmpfs", disk], capture_output=True).returncode:
        pytest.skip("mounting a small file system is not permitted here; test_a_full_disk stands in")
    try:
        run = here(capsys, "build", "--videos", recording / "cams", "--out", disk / "scene", "--console", "json")
        refused(run, recording, 6, str(disk), "Free some space")
        assert not (disk / "scene").exists()
    finally:
        subprocess.run(["umount", disk], check=True)


def test_a_read_only_output(recording: Path) -> None:
    locked = recording / "locked"
    locked.mkdir()
    locked.chmod(0o555)
    out = ["--out", locked / "scene", "--console", "json"]
    run = process("build", "--videos", recording / "cams", *out, before=obey_permissions)
    refused(run, recording, 6, str(locked), "not permitted", "may write to")


@pytest.mark.parametrize("command", ["info", "render"])
def test_a_flipped_byte_in_a_scene(scene_folder: Path, tmp_path: Path, capsys: Capsys, command: str) -> None:
    path = scene_folder / "gaussians.safetensors"
    data = bytearray(path.read_bytes())
    data[-1] ^= 1
    path.write_bytes(data)
    more = ["--out", tmp_path / "out"] if command == "render" else []
    run = here(capsys, command, scene_folder, *more, "--console", "json")
    assert run.code == 8
    assert "gaussians.safetensors is damaged" in run.text and "sha256 differs" in run.text
    assert "Restore the folder from a copy" in run.text


def test_a_ply_whose_header_lies(tmp_path: Path) -> None:
    path = tmp_path / "lying.ply"
    write_ply(
        Gaussians.static(torch.zeros(3, 3), torch.zeros(3, 3), torch.ones(3, 4), torch.zeros(3), torch.zeros(3, 1, 3)),
        path,
    )
    assert len(read_ply(path).gaussians) == 3
    path.write_bytes(path.read_bytes().replace(b"element vertex 3\n", b"element vertex 3000000000\n"))
    with pytest.raises(InputError, match=r"lying\.ply.*3000000000"):
        read_ply(path)


def test_errors_leave_the_process_with_their_code_and_no_traceback(recording: Path) -> None:
    (recording / "rig.json").unlink()
    run = process("build", "--videos", recording / "cams", folder=recording)
    assert run.code == 4
    assert "error: no calibration found" in run.errors and "Traceback" not in run.errors
    assert os.listdir(recording) == ["cams"]
