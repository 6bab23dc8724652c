"""From views of a board to a calibrated rig: lens by lens, linked by shared instants, then adjusted all at once."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

import numpy as np

from recon.calibrate.bundle import Problem, Solution, adjust
from recon.calibrate.intrinsics import Lens, choose_models, free_unknowns, start_camera
from recon.calibrate.linking import groups, place, shared_counts, sights
from recon.calibrate.sightings import Sightings, State, Views
from recon.core.errors import CalibrationError
from recon.geometry.camera import Camera
from recon.geometry.lens import FISHEYE

DISAGREE = 1.5  # times what is left when each view may have its own board pose
FEWEST = 4  # views without which a camera's lens and pose are not even tried


@dataclass(frozen=True, eq=False)
class Solved:
    """cameras: posed in the world of the first solution (any axes, metres). models: the lens model of each.

    solution and sightings number instants as `instants` [T] lists them.
    """

    cameras: list[Camera]
    models: list[str]
    solution: Solution
    sightings: Sightings
    instants: np.ndarray

    @property
    def timed(self) -> bool:
        """Whether the cameras' clocks had to be told apart."""
        return self.solution.trust.timing > 0

    def boards(self) -> dict[int, np.ndarray]:
        """instant -> world_from_board."""
        return dict(zip(self.instants.tolist(), self.solution.state.world_from_board, strict=True))


def start(
    names: Sequence[str], sizes: Sequence[tuple[int, int]], views: Views, points: np.ndarray, lens: Lens
) -> tuple[list[Camera], State, Views]:
    """(cameras, state, the views that place a board): from single views; instants are numbered as in `views`.

    points: [N, 3] metres, the board's corners. Raises CalibrationError for too few views and for groups of cameras that
    no shared view links.
    """
    counts = shared_counts(views, len(names))
    check_views(names, counts)
    cameras = []
    for k, (name, size) in enumerate(zip(names, sizes, strict=True)):
        own = [view for (camera, _), view in sorted(views.items()) if camera == k]
        cameras.append(start_camera(name, size, own, points, lens).camera)
    seen = sights(views, points, cameras)
    usable = {key: views[key] for key in seen}
    counts = shared_counts(usable, len(names))
    check_views(names, counts)
    check_linked(names, counts)
    placed, boards = place(seen, counts, cameras, 1 + max(t for _, t in views))
    return placed, State.of(placed, boards), usable


def solve(
    like: Sequence[Camera], state: State, views: Views, points: np.ndarray, lens: Lens, times: np.ndarray
) -> Solved:
    """The most likely rig. like: names and sizes of the cameras. state: a start, its boards numbered as in `views`.

    times: [T] seconds of all instants. Where the cameras disagree about a moving board, they look at different moments:
    then their clocks are unknowns too.
    """
    instants = np.array(sorted({t for _, t in views}), np.int64)
    number = {int(t): k for k, t in enumerate(instants)}
    sightings = Sightings.of({(c, number[t]): view for (c, t), view in views.items()}, points)
    state = replace(
        state,
        world_from_board=state.world_from_board[instants],
        velocity=state.velocity[instants],
        acceleration=state.acceleration[instants],
    )
    sizes = np.array([(camera.width, camera.height) for camera in like])
    full = "pinhole" if lens == "pinhole" else "k1 k2 p1 p2 k3"
    models = [FISHEYE if wide else full for wide in state.fisheye]
    problem = Problem(sizes, free_unknowns(models), points)
    solution = adjust(state, sightings, problem)
    together = float(np.median(np.linalg.norm(solution.trust.off, axis=1)))
    if len(like) > 1 and together > DISAGREE * float(np.median(solution.trust.rest)):
        problem = replace(problem, times=times[instants])
        solution = adjust(solution.state, sightings, problem)
    chosen = choose_models(solution, sightings) if lens == "auto" else models
    if chosen != models:
        models, free = chosen, free_unknowns(chosen)
        held = replace(solution.state, lens=np.where(free, solution.state.lens, 0.0))
        solution = adjust(held, sightings, replace(problem, free=free))
    return Solved(solution.state.cameras(like), models, solution, sightings, instants)


def check_views(names: Sequence[str], counts: np.ndarray) -> None:
    """Raise CalibrationError naming cameras that saw the board too seldom, and how many more views they need."""
    own = np.diag(counts)
    short = [k for k in range(len(names)) if own[k] < FEWEST]
    if not short:
        return
    needs = ", ".join(f"camera {names[k]} has {own[k]} and needs {FEWEST - own[k]} more" for k in short)
    raise CalibrationError(
        f"too few views of the board: {needs}",
        why=f"a camera cannot be calibrated from fewer than {FEWEST}",
        fix="Hold the board nearer to it, tilted in several ways, where other cameras see it too; or leave it out with "
        f"--cams {','.join(name for k, name in enumerate(names) if k not in short) or 'NAMES'}.",
    )


def check_linked(names: Sequence[str], counts: np.ndarray) -> None:
    """Raise CalibrationError naming the groups of cameras that never saw the board at the same time."""
    found = groups(counts)
    if len(found) < 2:
        return
    if all(len(group) == 1 for group in found):
        raise CalibrationError(
            "the board was never seen by two cameras at once",
            why=", ".join(f"{names[g[0]]} saw it {counts[g[0], g[0]]} times" for g in found),
            fix="Carry it where the pictures of two cameras overlap. Were the clips recorded at the same time?",
        )
    told = " | ".join(", ".join(names[k] for k in group) for group in found)
    raise CalibrationError(
        f"the cameras are not linked: {len(found)} groups share no view of the board: {told}",
        why="poses can only be measured between cameras that see the board at the same time",
        fix="Carry the board slowly from the view of one group into that of the other.",
    )
