"""Bundle adjustment of a rig that saw a board: all lenses, camera poses and board poses at once.

Each camera has its own noise sigma_c per corner, estimated from how well a view fits the board wherever that is.
Cameras whose shutters do not open together see a moving board at different places, so each instant has a jitter s_t
besides: the board as one camera saw it may be displaced, as a whole, by a random twist of deviation s_t (a length;
rotations count at the board's rim). With J the derivative of a view's pixels with respect to that twist, its residuals
have the covariance
    S = sigma_c^2 I + s_t^2 J J^T,     S^(-1/2) = (I - U diag(1 - 1/sqrt(1 + g^2)) U^T) / sigma_c
with U, g the left singular vectors and values of s_t J / sigma_c. Where cameras disagree because their clocks do, each
has a lag besides (an unknown) and each view a random one of deviation `timing`: a further column of J, the board's
velocity. So a view taken while the board moved still tells the lens, and tells the camera's pose as much as it can.
Where all cameras agree s_t is zero and nothing changes.

Levenberg-Marquardt on the normal equations, which are small: an observation touches one camera (16 unknowns) and one
instant (6). Corners far off are weighted down (soft L1) or left out, afresh each round.
"""

from __future__ import annotations

from dataclasses import dataclass, field, replace

import numpy as np
import scipy.linalg

from recon.calibrate.sightings import CAMERA, LENS, POSE, Sightings, State, adjoint, jacobian, motion, project
from recon.core.errors import DivergedError

ROUNDS = 8
SETTLED = 1e-3  # a round that changes no weight's deviation by more than this share is the last
MAX_STEPS = 40
TOLERANCE = 1e-6  # relative decrease of the cost that ends a descent
OUTLIER = 5.0  # in standard deviations: left out altogether
SOFT = 2.0  # in standard deviations: where weights begin to fall
NOISE = (0.02, 20.0)  # pixels, bounds of a camera's
NORMAL_MEDIAN = 1.1774  # median length of a 2D normal vector of unit deviation
BY_CHANCE = 3.0  # a displacement counts as jitter beyond this many times the square that noise alone makes
PRIOR_LAG = 0.1  # seconds
TIMING, TIMINGS = 0.02, (1e-5, 0.05)  # seconds: first guess and bounds of a view's delay
TYPICAL = 0.2  # pixels: noise against which delays are weighed
PRIOR_CENTRE = 0.04  # of the longer side: principal point from the middle
PRIOR_ASPECT = 0.002  # fx / fy - 1
PRIOR_LENS = np.array([0.3, 0.3, 0.01, 0.01, 0.2])  # k1 k2 p1 p2 k3


@dataclass(frozen=True, eq=False)
class Problem:
    """What is known besides the sightings. sizes: [C, 2] pixels. free: [C, 9] bool, the lens unknowns that may change.

    board: [N, 3] metres, all corners. fixed: the camera whose pose defines the world. times: [T] seconds of the
    instants when the cameras' lags are unknowns too, None when all look together.
    """

    sizes: np.ndarray
    free: np.ndarray
    board: np.ndarray
    fixed: int = 0
    times: np.ndarray | None = None


@dataclass(frozen=True, eq=False)
class Trust:
    """noise: [C] pixels per coordinate. jitter: [T] metres. weight: [N] in [0, 1], 0 for outliers.

    off: [N, 2] pixels, seen minus predicted for the moment at which each view was taken, as far as that is estimated.
    rest: [N] pixels, left when each view may have its board displaced. timing: seconds, deviation of a view's moment.
    """

    noise: np.ndarray
    jitter: np.ndarray
    weight: np.ndarray
    off: np.ndarray = field(repr=False)
    rest: np.ndarray = field(repr=False)
    timing: float = 0.0


@dataclass(frozen=True, eq=False)
class Solution:
    """The state, how far each sighting was believed, and the covariance [16 C + 6 T]^2 of all unknowns (held: 0)."""

    state: State
    trust: Trust
    covariance: np.ndarray = field(repr=False)

    @property
    def used(self) -> np.ndarray:
        """[N] bool: sightings that are no outliers."""
        return self.trust.weight > 0


def adjust(state: State, sightings: Sightings, problem: Problem) -> Solution:
    """The most likely state. Raises DivergedError when the numbers stop being finite."""
    state = _timed(state, problem)
    trust = judge(state, sightings, problem, np.ones(len(sightings)))
    for _ in range(ROUNDS if problem.times is None else 2 * ROUNDS):
        state = _timed(_descend(state, sightings, problem, trust), problem)
        before = trust
        trust = judge(state, sightings, problem, trust.weight, trust.timing)
        if np.abs(trust.noise / before.noise - 1).max() < SETTLED:
            break
    normal = _System(state, sightings, problem, trust).normal(state)[0]
    return Solution(state, trust, _inverse(normal, _free(problem, len(state.world_from_board))))


def judge(state: State, s: Sightings, problem: Problem, weight: np.ndarray, timing: float = TIMING) -> Trust:
    """Noise, jitter and weights from residuals; weight: [N], what the corners were worth so far. timing: likewise."""
    off = s.uv - project(state, s)
    finite = np.isfinite(off).all(1)
    weight = np.where(finite, np.maximum(weight, 1e-3), 0.0)
    off[~finite] = 1e3
    by_twist = _by_displacement(state, s, problem)
    if problem.times is not None:
        late, timing = _moments(state, s, off * np.sqrt(weight)[:, None], np.sqrt(weight), timing)
        off -= late
    else:
        timing = 0.0
    rest, spread = np.empty(len(s)), np.empty(len(s))
    views = s.views()
    shift, reach = np.zeros(len(views)), np.zeros(len(views))
    for k, rows in enumerate(views):
        j, r, root = by_twist[rows].reshape(-1, POSE), off[rows].ravel(), np.repeat(np.sqrt(weight[rows]), 2)
        displaced = j @ np.linalg.lstsq(root[:, None] * j, root * r, rcond=1e-6)[0]
        count = rows.stop - rows.start
        # A view has 2 n numbers and the displacement takes 6 of them away: what is left looks smaller than the noise.
        spread[rows] = np.sqrt(count / max(count - 3, 1))
        rest[rows] = np.linalg.norm((r - displaced).reshape(-1, 2), axis=1)
        shift[k], reach[k] = (displaced**2).sum() / count, (j**2).sum() / count
    noise = np.full(len(state.lens), NOISE[1])
    for camera in range(len(noise)):
        mine = finite & (s.camera == camera)
        if mine.any():
            noise[camera] = np.clip(np.median((rest * spread)[mine]) / NORMAL_MEDIAN, *NOISE)
    z = rest / noise[s.camera]
    trust_in = np.where(finite & (z < OUTLIER), 1 / np.sqrt(1 + (z / SOFT) ** 2), 0.0)
    jitter = _jitter(s, views, shift, reach, noise, len(state.world_from_board))
    return Trust(noise, jitter, trust_in, off, rest, timing)


def _timed(state: State, problem: Problem) -> State:
    """With the motion that its boards have now."""
    if problem.times is None:
        return state
    velocity, acceleration = motion(state.world_from_board, problem.times)
    return replace(state, velocity=velocity, acceleration=acceleration)


def _moments(state: State, s: Sightings, off: np.ndarray, root: np.ndarray, timing: float) -> tuple[np.ndarray, float]:
    """(pixels [N, 2] that each view's own delay explains, the delays' deviation): one step of expectation maximisation.

    off: [N, 2] pixels times root [N], the square root of the weights. A delay of prior deviation `timing` has the
    mean (j . r) / (j . j + sigma^2 / timing^2) and the variance sigma^2 / (j . j + sigma^2 / timing^2).
    """
    speed = np.nan_to_num(jacobian(state, s)[1][:, :, -1], posinf=0.0, neginf=0.0)  # [N, 2] pixels per second
    explained, squares = np.zeros_like(off), []
    for rows in s.views():
        j = speed[rows] * root[rows, None]
        precision = float((j * j).sum()) + (TYPICAL / timing) ** 2
        delay = float((j * off[rows]).sum()) / precision
        explained[rows] = speed[rows] * delay
        squares.append(delay**2 + TYPICAL**2 / precision)
    # One delay per instant goes into its board's pose.
    share = len(squares) / max(len(squares) - len(np.unique(s.instant)), 1)
    return explained, float(np.clip(np.sqrt(np.mean(squares) * share), *TIMINGS))


def _jitter(
    s: Sightings, views: list[slice], shift: np.ndarray, reach: np.ndarray, noise: np.ndarray, instants: int
) -> np.ndarray:
    """[T] metres, from the mean square displacement of each instant's views, in pixels, beyond what noise makes."""
    total, count = np.zeros(instants), np.zeros(instants)
    for k, rows in enumerate(views):
        instant, chance = int(s.instant[rows.start]), POSE * noise[s.camera[rows.start]] ** 2 / (rows.stop - rows.start)
        if np.isfinite(shift[k]) and reach[k] > 0:
            total[instant] += max(0.0, shift[k] - BY_CHANCE * chance) / reach[k]
        count[instant] += 1
    # The board itself stands at the mean of its views, which takes one of them away.
    return np.asarray(np.sqrt(total / np.maximum(count - 1, 1)) * (count > 1))


def _by_displacement(state: State, s: Sightings, problem: Problem) -> np.ndarray:
    """[N, 2, 6] pixels per metre that a view's board is displaced, about its middle and in its own axes."""
    middle = 0.5 * (problem.board.min(0) + problem.board.max(0))
    radius = float(np.linalg.norm(problem.board - middle, axis=1).max())
    centred = state.world_from_board.copy()
    centred[:, :3, 3] += centred[:, :3, :3] @ middle
    by_twist = adjoint(centred)
    by_twist[:, :, 3:] /= radius
    by_board = np.nan_to_num(jacobian(state, s)[2], posinf=0.0, neginf=0.0)
    return np.asarray(by_board @ by_twist[s.instant])


class _System:
    """The normal equations under fixed weights."""

    def __init__(self, state: State, s: Sightings, problem: Problem, trust: Trust) -> None:
        used = trust.weight > 0
        self.s, self.problem = s.select(used), problem
        self.views = self.s.views()
        self.root = np.repeat(np.sqrt(trust.weight[used]) / trust.noise[self.s.camera], 2)
        by_twist = _by_displacement(state, self.s, problem)
        speed = jacobian(state, self.s)[1][:, :, -1:] * trust.timing
        self.whiten = []
        for rows in self.views:
            random = np.concatenate([by_twist[rows] * trust.jitter[self.s.instant[rows.start]], speed[rows]], axis=2)
            scaled = random.reshape(-1, POSE + 1) * self.root[2 * rows.start : 2 * rows.stop, None]
            u, g, _ = np.linalg.svd(scaled, full_matrices=False)
            self.whiten.append((u, 1 - 1 / np.sqrt(1 + g * g)))

    def normal(self, state: State) -> tuple[np.ndarray, np.ndarray, float]:
        """(J^T J, J^T r, r^T r / 2) of whitened residuals r = predicted - seen, with the priors."""
        s, cameras = self.s, len(state.lens)
        uv, by_camera, by_board = jacobian(state, s)
        rows_of = np.concatenate([by_camera, by_board, (uv - s.uv)[..., None]], axis=2)
        everything = rows_of.reshape(-1, CAMERA + POSE + 1) * self.root[:, None]
        size = CAMERA * cameras + POSE * len(state.world_from_board)
        normal, gradient, cost = np.zeros((size, size)), np.zeros(size), 0.0
        for rows, (u, shrink) in zip(self.views, self.whiten, strict=True):
            block = everything[2 * rows.start : 2 * rows.stop]
            block = block - u @ (shrink[:, None] * (u.T @ block))
            product = block.T @ block
            camera = CAMERA * int(s.camera[rows.start])
            board = CAMERA * cameras + POSE * int(s.instant[rows.start])
            c, t = slice(camera, camera + CAMERA), slice(board, board + POSE)
            normal[c, c] += product[:CAMERA, :CAMERA]
            normal[t, t] += product[CAMERA:-1, CAMERA:-1]
            normal[c, t] += product[:CAMERA, CAMERA:-1]
            normal[t, c] += product[CAMERA:-1, :CAMERA]
            gradient[c] += product[:CAMERA, -1]
            gradient[t] += product[CAMERA:-1, -1]
            cost += 0.5 * float(product[-1, -1])
        for camera in range(cameras):
            cost += _add_prior(normal, gradient, CAMERA * camera, state.lens[camera], self.problem.sizes[camera])
            last = CAMERA * camera + CAMERA - 1
            normal[last, last] += PRIOR_LAG**-2.0
            gradient[last] += state.lag[camera] * PRIOR_LAG**-2.0
            cost += float(0.5 * (state.lag[camera] / PRIOR_LAG) ** 2)
        return normal, gradient, cost


def _descend(state: State, s: Sightings, problem: Problem, trust: Trust) -> State:
    free = _free(problem, len(state.world_from_board))
    system = _System(state, s, problem, trust)
    damping = 1e-4
    normal, gradient, cost = system.normal(state)
    for _ in range(MAX_STEPS):
        if not np.isfinite(cost):
            raise DivergedError("the calibration diverged", why="its cost is not finite")
        step = np.zeros(len(gradient))
        damped = normal[np.ix_(free, free)]
        damped[np.diag_indices_from(damped)] *= 1 + damping
        damped[np.diag_indices_from(damped)] += 1e-12
        step[free] = -scipy.linalg.solve(damped, gradient[free], assume_a="pos")
        trial = state.moved(step)
        following = system.normal(trial)
        if np.isfinite(following[2]) and following[2] < cost:
            gain = (cost - following[2]) / cost
            state, (normal, gradient, cost) = trial, following
            damping = max(damping / 5, 1e-9)
            if gain < TOLERANCE:
                break
        else:
            damping *= 8
            if damping > 1e6:
                break
    return state


def _add_prior(normal: np.ndarray, gradient: np.ndarray, at: int, lens: np.ndarray, size: np.ndarray) -> float:
    """What is known of any lens: the axis is near the middle, pixels are square, it bends light moderately."""
    precision = np.zeros(LENS)
    precision[2:4] = (PRIOR_CENTRE * size.max()) ** -2.0
    precision[4:] = PRIOR_LENS**-2.0
    expected = np.array([lens[0], lens[1], size[0] / 2, size[1] / 2, 0, 0, 0, 0, 0])
    diagonal = np.arange(at, at + LENS)
    normal[diagonal, diagonal] += precision
    gradient[at : at + LENS] += precision * (lens - expected)
    aspect = np.array([1.0, -1.0]) / (0.5 * (lens[0] + lens[1]) * PRIOR_ASPECT)
    normal[at : at + 2, at : at + 2] += np.outer(aspect, aspect)
    gradient[at : at + 2] += aspect * (aspect @ lens[:2])
    return float(0.5 * ((precision * (lens - expected) ** 2).sum() + (aspect @ lens[:2]) ** 2))


def _free(problem: Problem, instants: int) -> np.ndarray:
    """[16 C + 6 T] bool: unknowns that may change."""
    cameras = np.concatenate([problem.free, np.ones((len(problem.free), POSE + 1), bool)], axis=1)
    cameras[problem.fixed, LENS : LENS + POSE] = False
    cameras[:, -1] = problem.times is not None
    return np.concatenate([cameras.ravel(), np.ones(POSE * instants, bool)])


def _inverse(normal: np.ndarray, free: np.ndarray) -> np.ndarray:
    """Covariance of the free unknowns, zero elsewhere; unknowns that nothing determines get a large variance."""
    part = normal[np.ix_(free, free)]
    scale = 1 / np.sqrt(np.maximum(np.diag(part), 1e-12))
    values, vectors = np.linalg.eigh(part * scale * scale[:, None])
    values = np.maximum(values, 1e-12)
    covariance = np.zeros_like(normal)
    covariance[np.ix_(free, free)] = (vectors / values) @ vectors.T * scale * scale[:, None]
    return covariance
