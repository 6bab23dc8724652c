"""The far side of what the cameras look at, as one smooth closed surface round them.

Where nothing could be matched - plain walls, places that one camera sees - depth must still come from somewhere, and it
must be the same for every camera. The surface is star-shaped as seen from the mean camera centre c: for each unit
direction d its inverse distance q(d). On a plane n . (x - c) = h that is q = n . d / h, *linear* in d, so the energy

    sum_i w_i (q_i - m_i)^2 + STIFF sum_i (q_i - p_i)^2 + TAUT sum_ij (q_i - q_j)^2 + ANCHOR sum_j (q_j - 1 / far)^2,

with p_i the value at i of the plane through its neighbours' values,

continues measured walls as planes a while, then bends to a constant or, where fewer than half of the cameras have
measured walls behind them, lets go towards a distance well beyond the cameras: what is too far hides nothing, what is
too near is fog in front of another camera. m_i is measured where confirmed points lie in direction i, the last sum is
over the other directions; nearer ones (things in the room) and outliers lose their weight as the fit is repeated. A
wall that was found as a plane (`room`) is measured as such.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from scipy import sparse
from scipy.sparse.linalg import factorized, spsolve
from scipy.spatial import cKDTree

from recon.calibrate.cloud import Points
from recon.calibrate.room import Room
from recon.capture.coverage import rig_extent
from recon.geometry.camera import Camera, pixel_rays

NODES = 3000  # directions, about 3.7 degrees apart
NEIGHBOURS = 10
MIN_POINTS = 3  # in a direction, for a measurement
FAR_PERCENTILE = 55.0  # of the points in a direction: single strays behind do not count
STIFF, TAUT, ANCHOR = 1.0, 0.01, 0.03
BEHIND = 0.8  # of a camera's distance: a measurement at least so far, near its direction, lies behind it
SUPPORT = np.cos(np.radians(15.0))
BEYOND = 2.0  # far, in units of the largest distance of a camera, or the usual one of a point, from the centre
TOLERANCE = 0.05  # relative residual at which a measurement has lost half its weight
ROUNDS = 6
STEPS = 72  # along a ray
BACKDROP_NODES = 12_000
COLOURED = 20  # nodes with a colour, for a wall to keep to its own
FACING = 0.4  # least cosine between a direction and a found wall's normal: further aside it may have ended
TABLE = 180  # rows of the table of the surface, 1 degree each
REACH = 4.0  # times the median distance: how far rays are followed


@dataclass(frozen=True)
class Backdrop:
    """points: where the surface is bare. surface: points [N, 3] all over it, of which `bare` (bool [N]) are those."""

    points: Points
    surface: np.ndarray
    bare: np.ndarray


@dataclass(frozen=True)
class Shell:
    """center: [3]. table: 1 / metres [TABLE, 2 TABLE], rows from +z to -z, columns by the angle round z.

    room: the walls that the surface follows where it meets them, if any were found.
    """

    center: np.ndarray
    table: np.ndarray
    room: Room | None = None

    def inverse(self, offset: np.ndarray) -> np.ndarray:
        """1 / metres [N]: how near the surface is in the directions of `offset` [N, 3] from the centre."""
        level = np.arccos(np.clip(offset[:, 2] / np.maximum(np.linalg.norm(offset, axis=1), 1e-12), -1.0, 1.0))
        angle = np.arctan2(offset[:, 1], offset[:, 0])
        row = np.minimum((level / np.pi * TABLE).astype(np.int64), TABLE - 1)
        column = ((angle / (2 * np.pi) + 0.5) * 2 * TABLE).astype(np.int64) % (2 * TABLE)
        found = self.table[row, column]
        if self.room is not None:
            unit = offset / np.maximum(np.linalg.norm(offset, axis=1, keepdims=True), 1e-12)
            wall, inverse = walls(self.room, self.center, unit)
            found = np.where(wall >= 0, inverse, found)
        return found

    def positions(self, directions: np.ndarray) -> np.ndarray:
        """Where the surface lies in the unit directions [N, 3] from the centre: [N, 3]."""
        return self.center + directions / self.inverse(directions)[:, None]

    def inverse_depth(self, camera: Camera, near: float) -> np.ndarray:
        """float32 [h, w], 1 / metres along the optical axis: where each pixel's ray leaves the surface beyond `near`.

        A ray that is outside all the way gets the depth at which it is nearest to being inside.
        """
        far = REACH / float(np.median(self.table))
        z = near * (max(far, 2 * near) / near) ** np.linspace(0.0, 1.0, STEPS)
        rays = pixel_rays(camera)
        ratio = np.empty((STEPS, len(rays)))  # distance from the centre over the surface's in that direction
        for k in range(STEPS):
            offset = camera.center + z[k] * rays - self.center
            ratio[k] = np.linalg.norm(offset, axis=1) * self.inverse(offset)
        leaves = (ratio[:-1] < 1.0) & (ratio[1:] >= 1.0)
        k = np.where(leaves.any(axis=0), leaves.argmax(axis=0), np.minimum(ratio.argmin(axis=0), STEPS - 2))
        rows = np.arange(len(rays))
        before, after = ratio[k, rows], ratio[k + 1, rows]
        share = np.clip((1.0 - before) / np.where(after != before, after - before, 1.0), 0.0, 1.0)
        depth = z[k] * (z[k + 1] / z[k]) ** share
        return (1.0 / depth).reshape(camera.height, camera.width).astype(np.float32)


def _as_table(tree: cKDTree, values: np.ndarray) -> np.ndarray:
    """[TABLE, 2 TABLE] values at the directions of the table, from the nodes nearest to each."""
    level, angle = np.meshgrid(
        (np.arange(TABLE) + 0.5) / TABLE * np.pi, ((np.arange(2 * TABLE) + 0.5) / TABLE - 1.0) * np.pi, indexing="ij"
    )
    unit = np.stack([np.sin(level) * np.cos(angle), np.sin(level) * np.sin(angle), np.cos(level)], axis=-1)
    apart, near = tree.query(unit.reshape(-1, 3), k=4)
    weight = 1.0 / np.maximum(apart, 1e-6) ** 2
    found: np.ndarray = ((weight * values[near]).sum(axis=1) / weight.sum(axis=1)).reshape(TABLE, 2 * TABLE)
    return found


def walls(room: Room, center: np.ndarray, directions: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """(the wall of the room in each unit direction [N, 3], -1 where none is certain; 1 / metres to it)."""
    plane = room.plane(center, directions)
    facing = np.einsum("ni,ni->n", room.normals[plane], directions) > FACING
    return np.where(facing, plane, -1), room.inverse(center, directions)


def sphere_directions(count: int) -> np.ndarray:
    """unit [count, 3], evenly spread (a Fibonacci lattice)."""
    k = np.arange(count) + 0.5
    z = 1.0 - 2.0 * k / count
    angle = np.pi * (1.0 + 5.0**0.5) * k
    ring = np.sqrt(1.0 - z * z)
    return np.stack([ring * np.cos(angle), ring * np.sin(angle), z], axis=1)


def _within_walls(shell: Shell, directions: np.ndarray, neighbours: np.ndarray, covered: np.ndarray) -> np.ndarray:
    """`neighbours` [M, k] without links (a node links to itself instead) between walls that both have colours."""
    if shell.room is None:
        return neighbours
    wall, _ = walls(shell.room, shell.center, directions)
    coloured = np.bincount(wall[covered] + 1, minlength=len(shell.room.offsets) + 1) >= COLOURED
    own = np.where(coloured[wall + 1], wall, -1)
    parted = (own[:, None] != own[neighbours]) & (own[:, None] >= 0) & (own[neighbours] >= 0)
    return np.where(parted, np.arange(len(directions))[:, None], neighbours)


def _laplacian(neighbours: np.ndarray) -> sparse.csr_matrix:
    """[M, M]: q' L q is the sum of (q_i - q_j)^2 over the pairs that `neighbours` [M, k] links, either way."""
    count, k = neighbours.shape
    rows = np.repeat(np.arange(count), k)
    links = sparse.csr_matrix((np.ones(rows.size), (rows, neighbours.ravel())), shape=(count, count))
    links = links.maximum(links.T)
    return (sparse.diags(np.asarray(links.sum(axis=1)).ravel()) - links).tocsr()


def _plane_rows(directions: np.ndarray, neighbours: np.ndarray) -> sparse.csr_matrix:
    """[M, M]: q minus what the plane through the neighbours' values predicts, 0 for every plane."""
    count, k = neighbours.shape
    around = directions[neighbours]  # [M, k, 3]
    gram = np.einsum("mki,mkj->mij", around, around) + 1e-9 * np.eye(3)
    weights = np.einsum("mi,mij,mkj->mk", directions, np.linalg.inv(gram), around)
    rows = np.repeat(np.arange(count), k)
    predicted = sparse.csr_matrix((weights.ravel(), (rows, neighbours.ravel())), shape=(count, count))
    return sparse.identity(count, format="csr") - predicted


def _enclosed(directions: np.ndarray, distances: np.ndarray, cameras: list[Camera], center: np.ndarray) -> float:
    """Share of the cameras behind which something was measured: 1 in a closed room, 0 round a table in the open."""
    found = 0
    for camera in cameras:
        offset = camera.center - center
        away = float(np.linalg.norm(offset))
        near = directions @ offset > SUPPORT * away
        found += bool((distances[near] >= BEHIND * away).any())
    return found / len(cameras)


def fit_shell(points: np.ndarray, cameras: list[Camera], room: Room | None = None) -> Shell | None:
    """The surface through the far ones of `points` [N, 3], round the cameras; None with too few of them.

    In directions of a wall of the `room` the surface is that wall.
    """
    center = np.mean([camera.center for camera in cameras], axis=0)
    directions = sphere_directions(NODES)
    tree = cKDTree(directions)
    offset = points - center
    distance = np.linalg.norm(offset, axis=1)
    usable = distance > 1e-9
    offset, distance = offset[usable], distance[usable]
    _, node = tree.query(offset / distance[:, None])
    order = np.lexsort((distance, node))
    count = np.bincount(node, minlength=NODES)
    measured = count >= MIN_POINTS
    if measured.sum() < 50:
        return None
    given = np.zeros(NODES, dtype=bool)
    first = np.concatenate([[0], np.cumsum(count)[:-1]])
    pick = first + np.floor((count - 1).clip(0) * FAR_PERCENTILE / 100.0).astype(np.int64)
    known = np.zeros(NODES)
    known[measured] = 1.0 / distance[order][pick[measured]]
    if room is not None:
        wall, inverse = walls(room, center, directions)
        given = wall >= 0
        known[given] = inverse[given]
        measured |= given
    neighbours = tree.query(directions, k=NEIGHBOURS + 1)[1][:, 1:]
    stiff = _plane_rows(directions, neighbours)
    smooth = (STIFF * stiff.T @ stiff + TAUT * _laplacian(neighbours)).tocsc()
    # Cameras side by side are near their centre; then what they see says how large the place is.
    reach = rig_extent(cameras)
    known[~measured] = 1.0 / (BEYOND * max(reach, float(np.median(1.0 / known[measured]))))
    enclosed = _enclosed(directions[measured], 1.0 / known[measured], cameras, center)
    anchor = 1e-9 + ANCHOR * max(0.0, 1.0 - 2.0 * enclosed)
    weight = np.where(measured, 1.0, anchor)
    q = known
    low, high = np.quantile(known, [0.02, 0.98])
    for _ in range(ROUNDS):
        q = spsolve(smooth + sparse.diags(weight, format="csc"), weight * known)
        q = np.clip(q, 0.5 * low, 2.0 * high)
        residual = (known - q) / q  # above 0: nearer than the surface
        tolerance = np.where(residual > 0, 0.5 * TOLERANCE, TOLERANCE)
        weight = np.where(measured, 1.0 / (1.0 + (residual / tolerance) ** 2), anchor)
        weight[given] = 1.0
    return Shell(center, _as_table(tree, q), room)


def backdrop(shell: Shell, points: Points) -> Backdrop:
    """The surface where `points` leave it bare, so that a new view of what no camera saw is plain, not a hole.

    Its colours are those of the points it adjoins, spread by solving Laplace's equation over the bare part; from one
    wall of a room to the next nothing spreads, where both have colours of their own.
    """
    directions = sphere_directions(BACKDROP_NODES)
    xyz = shell.positions(directions)
    spacing = np.sqrt(4 * np.pi / BACKDROP_NODES) * np.linalg.norm(xyz - shell.center, axis=1)
    tree = cKDTree(points.xyz)
    apart, nearest = tree.query(xyz, k=4)
    covered = apart[:, -1] < 1.5 * spacing
    if covered.all() or not covered.any():
        return Backdrop(points.select(np.zeros(len(points), bool)), xyz, np.zeros(len(xyz), bool))
    bare = ~covered
    neighbours = cKDTree(directions).query(directions, k=7)[1][:, 1:]
    laplace = _laplacian(_within_walls(shell, directions, neighbours, covered))
    known = points.rgb[nearest[covered]].mean(axis=1)
    solve = factorized(laplace[bare][:, bare].tocsc() + 1e-9 * sparse.identity(int(bare.sum()), format="csc"))
    force = -laplace[bare][:, covered] @ known
    colour = np.stack([solve(force[:, c]) for c in range(3)], axis=1)
    count = int(bare.sum())
    rgb = np.clip(colour.round(), 0, 255).astype(np.uint8)
    return Backdrop(Points(xyz[bare], rgb, np.zeros(count, np.int64), np.ones(count)), xyz, bare)
