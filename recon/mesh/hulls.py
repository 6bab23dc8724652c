"""Convex pieces to collide with, by CoACD."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import trimesh

from recon.core.errors import UnavailableError
from recon.mesh.fuse import open3d
from recon.mesh.gap import Gap

FACES = 800  # a surface is simplified to this many before it is cut: CoACD's time grows with them
FINER = (3.0, 1.5, 0.75)  # concavities that are tried, in errors
SEARCH = {"mcts_iterations": 20, "mcts_nodes": 10, "mcts_max_depth": 2, "resolution": 500}  # a fraction of its usual
SEED = 0


def coacd() -> Any:
    """CoACD, imported now and silenced. Raises UnavailableError, naming the extra, when it is not installed."""
    try:
        import coacd
    except (ImportError, OSError) as error:
        raise UnavailableError(
            "convex pieces need CoACD", why=str(error) or "it is not installed", fix="pip install 'recon4d[geom]'"
        ) from error
    coacd.set_log_level("error")
    return coacd


def fitting_pieces(
    surface: trimesh.Trimesh,
    audit: Callable[[list[trimesh.Trimesh]], Gap],
    error: float,
    most: int,
    finer: tuple[float, ...] = FINER,
) -> tuple[list[trimesh.Trimesh], Gap]:
    """The fewest convex pieces, at most `most`, whose gap's p95 is below `error` metres; else those that come closest.

    Tries the convex hull, then CoACD with concavities of `finer` errors.
    """
    simple = simplified(surface, FACES)
    best: tuple[list[trimesh.Trimesh], Gap] | None = None
    for concavity in (None, *(factor * error for factor in finer)):
        pieces = [simple.convex_hull] if concavity is None else convex_pieces(simple, concavity, most)
        found = audit(pieces)
        if best is None or found.p95_mm < best[1].p95_mm:
            best = pieces, found
        if found.p95_mm <= 1000 * error:
            break
    assert best is not None
    return best


def convex_pieces(mesh: trimesh.Trimesh, concavity: float, most: int) -> list[trimesh.Trimesh]:
    """At most `most` convex pieces of a closed surface, cut until none is more concave than `concavity` metres."""
    library = coacd()
    parts = library.run_coacd(
        library.Mesh(mesh.vertices, mesh.faces), threshold=concavity, real_metric=True, max_convex_hull=most,
        preprocess_mode="off", seed=SEED, **SEARCH,
    )  # fmt: skip
    pieces = [trimesh.Trimesh(np.asarray(v), np.asarray(f), process=True).convex_hull for v, f in parts]
    return [piece for piece in pieces if piece.volume > 0]


def simplified(mesh: trimesh.Trimesh, faces: int) -> trimesh.Trimesh:
    """The surface with at most `faces` triangles, by quadric errors."""
    if len(mesh.faces) <= faces:
        return mesh
    o3d = open3d()
    legacy = o3d.geometry.TriangleMesh(
        o3d.utility.Vector3dVector(mesh.vertices), o3d.utility.Vector3iVector(mesh.faces)
    )
    small = legacy.simplify_quadric_decimation(faces)
    return trimesh.Trimesh(np.asarray(small.vertices), np.asarray(small.triangles), process=True)
