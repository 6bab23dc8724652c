"""OpenUSD for Isaac Sim 6 and other readers of UsdPhysics: one `scene.usdc`.

/World                       Xform, default prim; upAxis Z, metersPerUnit 1, kilogramsPerUnit 1
/World/physicsScene          gravity
/World/materials/<n>         UsdPhysics materials, one per friction
/World/bench                 collision shapes, surface
/World/robot                 ArticulationRootAPI; /links/<link>: RigidBodyAPI, MassAPI, shapes, surface, `gaussians`
/World/robot/joints/<joint>  limits (degrees or m), DriveAPI; `root` fixes the base
/World/things/<body>         RigidBodyAPI, MassAPI, convex pieces, surface, `gaussians`
/World/still                 Gaussians of the world (ParticleField3DGaussianSplat)
/World/cameras/<name>        exact focal lengths and principal points: see `write_camera`
"""

from __future__ import annotations

from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
from numpy.typing import NDArray

from recon.core.errors import UnavailableError
from recon.geometry.camera import Camera
from recon.geometry.convert import opengl_from_opencv_pose
from recon.geometry.pose import invert_pose
from recon.geometry.quaternion import matrix_to_quat
from recon.geometry.srgb import to_linear
from recon.scene.formats.usd import define_gaussians, pxr
from sim2real.export.cargo import Cargo
from sim2real.export.folder import copy_scripts, write_splats
from sim2real.export.header import file_names, joint_names, plain_names, write_header
from sim2real.export.parts import Part, Segment, Shape, segments
from sim2real.export.skins import WORLD_SKIN
from sim2real.export.surfaces import by_colour, shapes_surface
from sim2real.export.things import vertex_colours

Array = NDArray[np.float64]

ABOUT = "OpenUSD with UsdPhysics bodies, joints and masses and Gaussians as ParticleFields, for Isaac Sim 6"
LOSSES = (
    "couplings of joints (a gripper's second finger): UsdPhysics has no word for them; each finger has its own drive",
    "joint armature and dry friction: only as attributes of PhysX",
    "a camera's own colours",
)
HOW_TO_OPEN = "Isaac Sim: File > Open > {out}/scene.usdc"
FILE = "scene.usdc"
NO_MASS = 1e-5  # kg and kg m^2, of bodies that only carry a joint
APERTURE = 20.955  # mm, UsdGeom's own default: only ratios matter


def write(cargo: Cargo, folder: Path) -> None:
    """Write everything into the (staging) folder. UnavailableError without usd-core."""
    write_stage(cargo, folder / FILE)
    write_header(cargo, folder, write_splats(cargo, folder))
    copy_scripts(folder, "draw.py")


def write_stage(cargo: Cargo, path: Path) -> None:
    """Write the stage."""
    u = modules(path)
    stage = u.Usd.Stage.CreateNew(str(path))
    u.UsdGeom.SetStageUpAxis(stage, u.UsdGeom.Tokens.z)
    u.UsdGeom.SetStageMetersPerUnit(stage, 1.0)
    u.UsdPhysics.SetStageKilogramsPerUnit(stage, 1.0)
    world = u.UsdGeom.Xform.Define(stage, "/World")
    stage.SetDefaultPrim(world.GetPrim())
    physics = u.UsdPhysics.Scene.Define(stage, "/World/physicsScene")
    gravity = np.asarray(cargo.model.opt.gravity, float)
    physics.CreateGravityMagnitudeAttr(float(np.linalg.norm(gravity)))
    physics.CreateGravityDirectionAttr(u.Gf.Vec3f(*(gravity / max(np.linalg.norm(gravity), 1e-9)).tolist()))
    names = file_names(cargo)
    writer = StageWriter(u, stage, "/World/materials")
    _bench(writer, cargo)
    _robot(writer, cargo, names)
    _things(writer, cargo, names)
    if len(cargo.skins[WORLD_SKIN].gaussians):
        define_gaussians(u, stage, "/World/still", cargo.skins[WORLD_SKIN].gaussians)
    u.UsdGeom.Scope.Define(stage, "/World/cameras")
    for camera in cargo.rig.cameras.values():
        write_camera(writer, "/World/cameras", camera)
    stage.GetRootLayer().Save()


def modules(path: Path) -> SimpleNamespace:
    """The modules of usd-core with physics; UnavailableError where they are not."""
    u = pxr(path)
    try:
        from pxr import UsdPhysics, UsdShade
    except ImportError as error:
        raise UnavailableError(f"{path} cannot be written", why="this usd-core has no UsdPhysics") from error
    return SimpleNamespace(**vars(u), UsdPhysics=UsdPhysics, UsdShade=UsdShade)


class StageWriter:
    """A stage with the few things that are made many times."""

    def __init__(self, u: SimpleNamespace, stage: Any, materials: str) -> None:
        """materials: the scope they go to; made at once unless it is ''."""
        self.u, self.stage, self._place = u, stage, materials
        self._materials: dict[float, Any] = {}
        if materials:
            u.UsdGeom.Scope.Define(stage, materials)

    def xform(self, place: str, pose: Array) -> Any:
        """An Xform at a pose (rigid, in its parent)."""
        prim = self.u.UsdGeom.Xform.Define(self.stage, place)
        self.place(prim, pose)
        return prim.GetPrim()

    def place(self, prim: Any, pose: Array) -> None:
        """Give it a translate and an orient operation."""
        double = self.u.UsdGeom.XformOp.PrecisionDouble
        prim.AddTranslateOp(double).Set(self.u.Gf.Vec3d(*pose[:3, 3].tolist()))
        w, x, y, z = matrix_to_quat(pose[:3, :3]).tolist()
        prim.AddOrientOp(double).Set(self.u.Gf.Quatd(w, x, y, z))

    def quat(self, rotation: Array) -> Any:
        """Gf.Quatf of a rotation [3, 3]."""
        return self.u.Gf.Quatf(*matrix_to_quat(rotation).tolist())

    def surface(self, place: str, vertices: Array, faces: NDArray[np.int32], colour: Array, covered: bool) -> None:
        """What is looked at; only a proxy where Gaussians lie on it (covered), which it would hide."""
        mesh = self.mesh(place, vertices, faces, colour)
        if covered:
            mesh.CreatePurposeAttr(self.u.UsdGeom.Tokens.proxy)

    def mesh(self, place: str, vertices: Array, faces: NDArray[np.int32], colour: Array) -> Any:
        """Triangles with one colour [3] or one per vertex [V, 3], sRGB 0 to 1."""
        u, mesh = self.u, self.u.UsdGeom.Mesh.Define(self.stage, place)
        points = np.ascontiguousarray(vertices, np.float32)
        mesh.CreatePointsAttr(u.Vt.Vec3fArray.FromNumpy(points))
        mesh.CreateFaceVertexCountsAttr(u.Vt.IntArray.FromNumpy(np.full(len(faces), 3, np.int32)))
        mesh.CreateFaceVertexIndicesAttr(u.Vt.IntArray.FromNumpy(np.ascontiguousarray(faces, np.int32).ravel()))
        mesh.CreateSubdivisionSchemeAttr(u.UsdGeom.Tokens.none)
        mesh.CreateExtentAttr(u.Vt.Vec3fArray.FromNumpy(np.stack([points.min(0), points.max(0)])))
        rows = np.atleast_2d(np.asarray(colour, np.float32))[:, :3]
        # displayColor is linear: undo the sRGB curve
        linear = to_linear(rows)
        kind = u.UsdGeom.Tokens.constant if len(rows) == 1 else u.UsdGeom.Tokens.vertex
        mesh.CreateDisplayColorPrimvar(kind).Set(u.Vt.Vec3fArray.FromNumpy(np.ascontiguousarray(linear)))
        return mesh

    def body(self, place: str, pose: Array, mass: float, center: Array, axes: Array, moments: Array) -> Any:
        """A rigid body with its exact mass."""
        prim = self.xform(place, pose)
        self.u.UsdPhysics.RigidBodyAPI.Apply(prim)
        self.mass(prim, mass, center, axes, moments)
        return prim

    def mass(self, prim: Any, mass: float, center: Array, axes: Array, moments: Array) -> None:
        """Mass, centre and inertia of a body."""
        u, api = self.u, self.u.UsdPhysics.MassAPI.Apply(prim)
        api.CreateMassAttr(float(mass))
        api.CreateCenterOfMassAttr(u.Gf.Vec3f(*center.tolist()))
        api.CreateDiagonalInertiaAttr(u.Gf.Vec3f(*moments.tolist()))
        api.CreatePrincipalAxesAttr(self.quat(axes))

    def shape(self, place: str, shape: Shape) -> None:
        """Something that collides and is not drawn (purpose guide)."""
        u = self.u
        if shape.mesh is not None:
            geom = self.mesh(place, *shape.mesh, np.array(shape.rgba[:3]))
            u.UsdPhysics.MeshCollisionAPI.Apply(geom.GetPrim()).CreateApproximationAttr(u.UsdPhysics.Tokens.convexHull)
            self.place(geom, shape.part_from_shape)
        elif shape.kind == "box":
            geom = u.UsdGeom.Cube.Define(self.stage, place)
            geom.CreateSizeAttr(2.0)
            self.place(geom, shape.part_from_shape)
            geom.AddScaleOp(u.UsdGeom.XformOp.PrecisionDouble).Set(u.Gf.Vec3d(*shape.size))
        elif shape.kind == "sphere":
            geom = u.UsdGeom.Sphere.Define(self.stage, place)
            geom.CreateRadiusAttr(shape.size[0])
            self.place(geom, shape.part_from_shape)
        else:
            kind = u.UsdGeom.Cylinder if shape.kind == "cylinder" else u.UsdGeom.Capsule
            geom = kind.Define(self.stage, place)
            geom.CreateRadiusAttr(shape.size[0])
            geom.CreateHeightAttr(2 * shape.size[1])
            geom.CreateAxisAttr(u.UsdGeom.Tokens.z)
            self.place(geom, shape.part_from_shape)
        geom.CreatePurposeAttr(u.UsdGeom.Tokens.guide)
        u.UsdPhysics.CollisionAPI.Apply(geom.GetPrim())
        self.material(geom.GetPrim(), shape.friction)

    def material(self, prim: Any, friction: float) -> None:
        """Bind the physics material of that friction."""
        u = self.u
        if friction not in self._materials:
            place = f"{self._place}/friction_{len(self._materials)}"
            made = u.UsdShade.Material.Define(self.stage, place)
            api = u.UsdPhysics.MaterialAPI.Apply(made.GetPrim())
            api.CreateStaticFrictionAttr(friction)
            api.CreateDynamicFrictionAttr(friction)
            api.CreateRestitutionAttr(0.0)
            self._materials[friction] = made
        binding = u.UsdShade.MaterialBindingAPI.Apply(prim)
        binding.Bind(self._materials[friction], u.UsdShade.Tokens.weakerThanDescendants, "physics")


def _bench(writer: StageWriter, cargo: Cargo) -> None:
    writer.xform("/World/bench", np.eye(4))
    surface = cargo.bench_surface if cargo.bench_surface is not None else shapes_surface(cargo.fixed)
    colours = vertex_colours(surface)
    covered = len(cargo.skins[WORLD_SKIN].gaussians) > 0
    writer.surface("/World/bench/surface", surface.vertices, surface.faces, colours, covered)
    for number, shape in enumerate(cargo.fixed):
        writer.shape(f"/World/bench/shape_{number:03d}", shape)


def _robot(writer: StageWriter, cargo: Cargo, names: dict[str, str]) -> None:
    u, stage = writer.u, writer.stage
    root = writer.xform("/World/robot", np.eye(4))
    u.UsdPhysics.ArticulationRootAPI.Apply(root)
    for scope in ("links", "joints"):
        u.UsdGeom.Scope.Define(stage, f"/World/robot/{scope}")
    joints = joint_names(cargo)
    places: dict[Any, str] = {None: ""}
    poses: dict[Any, Array] = {None: np.eye(4)}
    for part in cargo.parts:
        for segment in segments(part):
            poses[segment.child] = poses[segment.parent] @ segment.origin
            word = names[part.name]
            if isinstance(segment.child, tuple):
                word = f"{word}__{joints[segment.child[1]]}"
            places[segment.child] = f"/World/robot/links/{word}"
            if isinstance(segment.child, tuple):
                writer.body(places[segment.child], poses[segment.child], NO_MASS, np.zeros(3), np.eye(3),
                            np.full(3, NO_MASS))  # fmt: skip
            else:
                _link(writer, cargo, part, places[segment.child], poses[segment.child])
            _joint(writer, cargo, segment, places, joints, word)
    for first, second in cargo.excluded:
        pair = [places.get(name, "/World/bench") for name in (first, second)]
        api = u.UsdPhysics.FilteredPairsAPI.Apply(stage.GetPrimAtPath(pair[0]))
        api.CreateFilteredPairsRel().AddTarget(pair[1])


def _link(writer: StageWriter, cargo: Cargo, part: Part, place: str, pose: Array) -> None:
    prim = writer.body(place, pose, part.mass, part.center, part.axes, part.moments)
    if part.gravity == 0:
        prim.AddAppliedSchema("PhysxRigidBodyAPI")
        flag = prim.CreateAttribute("physxRigidBody:disableGravity", writer.u.Sdf.ValueTypeNames.Bool)
        flag.Set(True)
    skin = cargo.skins.get(part.name)
    covered = skin is not None and len(skin.gaussians) > 0
    for number, (vertices, faces, rgba) in enumerate(by_colour(part.meshes)):
        writer.surface(f"{place}/surface_{number}", vertices, faces, np.array(rgba[:3]), covered)
    for number, shape in enumerate(part.shapes):
        writer.shape(f"{place}/shape_{number:03d}", shape)
    if skin is not None and covered:
        define_gaussians(writer.u, writer.stage, f"{place}/gaussians", skin.gaussians)


def _joint(
    writer: StageWriter, cargo: Cargo, segment: Segment, places: dict[Any, str], joints: dict[str, str], word: str
) -> None:  # fmt: skip
    """UsdPhysics moves along the x axis of its frame: both bodies' frames are turned so that it is the joint's axis."""
    u, joint, physics = writer.u, segment.joint, writer.u.UsdPhysics
    turn = np.eye(4)
    if joint is None:
        place = "/World/robot/joints/root" if segment.parent is None else f"/World/robot/joints/{word}_fixed"
        prim = physics.FixedJoint.Define(writer.stage, place)
    else:
        kind = physics.PrismaticJoint if joint.kind == "prismatic" else physics.RevoluteJoint
        prim = kind.Define(writer.stage, f"/World/robot/joints/{joints[joint.name]}")
        prim.CreateAxisAttr("X")
        turn[:3, :3] = _x_to(joint.axis)
        unit = 1.0 if joint.kind == "prismatic" else np.degrees(1.0)
        if joint.limited:
            prim.CreateLowerLimitAttr(joint.lower * unit)
            prim.CreateUpperLimitAttr(joint.upper * unit)
        _drive(writer, cargo, prim.GetPrim(), joint.name, unit)
    if segment.parent is not None:
        prim.CreateBody0Rel().SetTargets([places[segment.parent]])
    prim.CreateBody1Rel().SetTargets([places[segment.child]])
    first = segment.origin @ turn
    prim.CreateLocalPos0Attr(u.Gf.Vec3f(*first[:3, 3].tolist()))
    prim.CreateLocalRot0Attr(writer.quat(first[:3, :3]))
    prim.CreateLocalPos1Attr(u.Gf.Vec3f(0, 0, 0))
    prim.CreateLocalRot1Attr(writer.quat(turn[:3, :3]))


def _drive(writer: StageWriter, cargo: Cargo, prim: Any, name: str, unit: float) -> None:
    """Its servo, a follower's that of its leader; per degree where the joint turns."""
    known = {joint.name: joint for part in cargo.parts for joint in part.joints}
    joint = known[name]
    leaders = [c.leader for c in cargo.couplings if c.follower == name]
    servo = known[leaders[0]] if leaders and joint.kp == 0 else joint
    word = "linear" if joint.kind == "prismatic" else "angular"
    api = writer.u.UsdPhysics.DriveAPI.Apply(prim, word)
    api.CreateTypeAttr("force")
    api.CreateStiffnessAttr(servo.kp / unit)
    api.CreateDampingAttr((servo.kv + joint.damping) / unit)
    api.CreateTargetPositionAttr(joint.home * unit)
    if np.isfinite(servo.force):
        api.CreateMaxForceAttr(servo.force)
    prim.AddAppliedSchema(f"PhysicsJointStateAPI:{word}")  # PhysX starts there
    state = prim.CreateAttribute(f"state:{word}:physics:position", writer.u.Sdf.ValueTypeNames.Float)
    state.Set(float(joint.home * unit))
    for attribute, value in (("armature", joint.armature), ("jointFriction", joint.dry_friction)):
        prim.CreateAttribute(f"physxJoint:{attribute}", writer.u.Sdf.ValueTypeNames.Float).Set(value)
    prim.AddAppliedSchema("PhysxJointAPI")


def _x_to(axis: Array) -> Array:
    """A rotation [3, 3] that takes x to the unit `axis`, the same for equal input."""
    helper = np.eye(3)[int(np.argmin(np.abs(axis)))]
    second = np.cross(axis, helper)
    second /= np.linalg.norm(second)
    return np.stack([axis, second, np.cross(axis, second)], axis=1)


def _things(writer: StageWriter, cargo: Cargo, names: dict[str, str]) -> None:
    writer.u.UsdGeom.Scope.Define(writer.stage, "/World/things")
    for thing in cargo.things:
        place = f"/World/things/{names[thing.name]}"
        writer.body(place, thing.world_from_thing, thing.mass, thing.center, *thing.principal)
        colours = vertex_colours(thing.surface)
        skin = cargo.skins.get(thing.name)
        covered = skin is not None and len(skin.gaussians) > 0
        writer.surface(f"{place}/surface", thing.surface.vertices, thing.surface.faces, colours, covered)
        for number, piece in enumerate(thing.pieces):
            shape = Shape("", "hull", (), np.eye(4), thing.friction, (*thing.colour, 1.0), piece)
            writer.shape(f"{place}/shape_{number:03d}", shape)
        if skin is not None and covered:
            define_gaussians(writer.u, writer.stage, f"{place}/gaussians", skin.gaussians)


def write_camera(writer: StageWriter, scope: str, original: Camera, here_from_world: Array | None = None) -> None:
    """UsdGeom.Camera: aperture / focal length = pixels / focal in pixels; the offset moves the picture's middle.

    horizontalAperture = A, focalLength = A fx / W, verticalAperture = A (H / W) (fx / fy)
    horizontalApertureOffset = (W / 2 - cx) A / W, verticalApertureOffset = (cy - H / 2) A fx / (W fy)
    """
    camera, u = original.pinhole(), writer.u
    plain = next(iter(plain_names([camera.name]).values()))
    prim = u.UsdGeom.Camera.Define(writer.stage, f"{scope}/{plain}")
    pose = invert_pose(opengl_from_opencv_pose(camera.cam_from_world))
    writer.place(prim, pose if here_from_world is None else here_from_world @ pose)
    per_pixel, aspect = APERTURE / camera.width, camera.fx / camera.fy
    prim.CreateHorizontalApertureAttr(APERTURE)
    prim.CreateVerticalApertureAttr(per_pixel * camera.height * aspect)
    prim.CreateFocalLengthAttr(per_pixel * camera.fx)
    prim.CreateHorizontalApertureOffsetAttr((camera.width / 2 - camera.cx) * per_pixel)
    prim.CreateVerticalApertureOffsetAttr((camera.cy - camera.height / 2) * per_pixel * aspect)
    prim.CreateClippingRangeAttr(u.Gf.Vec2f(0.01, 100.0))
    prim.GetPrim().SetCustomDataByKey("resolution", u.Gf.Vec2i(camera.width, camera.height))
