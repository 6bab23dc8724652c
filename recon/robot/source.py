"""Opening a robot file without trusting it.

A robot description names other files: meshes, textures, includes. Before MuJoCo's compiler sees the description, every
such name is resolved here and must lie inside the robot's folder; sizes are bounded and XML entities refused.
"""

from __future__ import annotations

import xml.etree.ElementTree as ET
from pathlib import Path
from typing import TYPE_CHECKING, Any

from recon.core.errors import InputError, UnavailableError

if TYPE_CHECKING:
    import mujoco

MAX_XML_BYTES = 16 * 2**20
MAX_ASSET_BYTES = 256 * 2**20
MAX_INCLUDE_DEPTH = 8
_DIRECTORY_ATTRIBUTES = ("meshdir", "texturedir", "assetdir")
_COMPILER_MESHES = {".obj", ".stl", ".msh"}  # what MuJoCo's compiler reads


def import_mujoco() -> Any:
    """Return the mujoco package.

    Raises:
        UnavailableError: It is not installed.
    """
    try:
        import mujoco
    except ImportError as error:
        raise UnavailableError(
            "robot descriptions cannot be read",
            why=f"the mujoco package is missing ({error})",
            fix="Install the sim extra (mujoco >= 4).",
        ) from error
    return mujoco


def load_spec(path: str | Path, root: str | Path | None = None) -> mujoco.MjSpec:
    """Read an MJCF or URDF file into an editable MuJoCo specification.

    Args:
        path: The description. The root element decides the format: `mujoco` or `robot`.
        root: Folder that no referenced file may leave; default: the folder of `path`.

    Raises:
        InputError: Missing or malformed file; a name that leaves `root`; a mesh format the compiler does not read.
        UnavailableError: mujoco is not installed.
    """
    path = Path(path)
    folder = path.resolve().parent
    fence = folder if root is None else Path(root).resolve()
    if not folder.is_relative_to(fence):
        raise InputError(f"robot {path} lies outside {fence}", fix="Give a robot file inside that folder.")
    tree = _read_xml(path)
    mujoco = import_mujoco()
    try:
        if tree.tag == "mujoco":
            _check_mjcf(tree, path, folder, fence, depth=0)
            return mujoco.MjSpec.from_file(str(path.resolve()))
        if tree.tag == "robot":
            return mujoco.MjSpec.from_string(_urdf_for_compiler(tree, path, folder, fence))
    except ValueError as error:
        raise _refused(path, error) from error
    raise InputError(
        f"{path} is not a robot description",
        why=f"its root element is <{tree.tag}>",
        fix="Give an MJCF (<mujoco>) or a URDF (<robot>) file; expand xacro files first.",
    )


def compile_spec(spec: mujoco.MjSpec, path: Path) -> mujoco.MjModel:
    """Compile a specification; InputError carries the compiler's reason."""
    try:
        return spec.compile()
    except ValueError as error:
        raise _refused(path, error) from error


def _refused(path: Path, error: ValueError) -> InputError:
    reason = " ".join(str(error).split())
    return InputError(f"robot {path} cannot be read", why=reason, fix="Correct the description.")


def _read_xml(path: Path) -> ET.Element:
    """Parse one bounded UTF-8 XML file without document type or entities."""
    try:
        size = path.stat().st_size
        if not path.is_file() or size > MAX_XML_BYTES:
            raise InputError(f"{path} is not a robot description", why=f"{size} bytes, or not a regular file")
        text = path.read_text(encoding="utf-8-sig")
    except (OSError, UnicodeDecodeError) as error:
        raise InputError(f"robot file {path} cannot be read", why=str(error)) from error
    if "<!DOCTYPE" in text.upper() or "<!ENTITY" in text.upper():
        raise InputError(f"robot file {path} is refused", why="it declares XML entities", fix="Remove the DOCTYPE.")
    try:
        return ET.fromstring(text)
    except (ET.ParseError, ValueError) as error:
        raise InputError(f"robot file {path} is not XML", why=str(error)) from error


def _check_mjcf(tree: ET.Element, path: Path, folder: Path, fence: Path, depth: int) -> None:
    """Prove that every file an MJCF names, through includes too, exists inside the fence."""
    if depth > MAX_INCLUDE_DEPTH:
        raise InputError(f"robot file {path} includes too deeply", why=f"more than {MAX_INCLUDE_DEPTH} levels")
    directories = [""]
    for element in tree.iter():
        directories += [element.attrib[name] for name in _DIRECTORY_ATTRIBUTES if name in element.attrib]
    for element in tree.iter():
        for name, value in element.attrib.items():
            if not name.startswith("file") or not value:
                continue
            places = [folder / d / value for d in directories] + [folder / d / Path(value).name for d in directories]
            found = _find(value, [path.resolve().parent / value, *places], path, fence)
            if element.tag in ("include", "model") and found.suffix.lower() in (".xml", ".mjcf"):
                _check_mjcf(_read_xml(found), found, folder, fence, depth + 1)
    for directory in directories:
        if Path(directory).is_absolute() or not (folder / directory).resolve().is_relative_to(fence):
            raise _leaves(path, directory, fence)


def _leaves(path: Path, value: str, fence: Path) -> InputError:
    return InputError(
        f"robot file {path} names {value!r}",
        why=f"that leaves the robot's folder {fence}",
        fix="Copy the file into the robot's folder and name it relative to the description.",
    )


def _find(value: str, places: list[Path], path: Path, fence: Path) -> Path:
    """Return the first of `places` that exists; refuse names that lead out of the fence."""
    if Path(value).is_absolute() or ":" in value or "\\" in value or "\0" in value:
        raise _leaves(path, value, fence)
    for place in places:
        real = place.resolve()
        if real.is_file():
            if not real.is_relative_to(fence):
                raise _leaves(path, value, fence)
            if real.stat().st_size > MAX_ASSET_BYTES:
                raise InputError(f"{real} is too large", why=f"more than {MAX_ASSET_BYTES >> 20} MiB")
            return real
    if not any(place.resolve().is_relative_to(fence) for place in places):
        raise _leaves(path, value, fence)
    raise InputError(f"robot file {path} names {value!r}", why="there is no such file in the robot's folder")


def _urdf_for_compiler(tree: ET.Element, path: Path, folder: Path, fence: Path) -> str:
    """Return the URDF with resolved mesh names and the compiler options that keep links and visuals apart."""
    extension = tree.find("mujoco")
    if extension is None:
        extension = ET.SubElement(tree, "mujoco")
    compiler = extension.find("compiler")
    if compiler is None:
        compiler = ET.SubElement(extension, "compiler")
    directory = compiler.get("meshdir", "")
    parents = [folder, *(parent for parent in folder.parents if parent.is_relative_to(fence))]
    for element in tree.iter():
        value = element.get("filename")
        if not value or element.tag not in ("mesh", "texture"):
            continue
        if value.startswith("package://"):
            package, _, rest = value.removeprefix("package://").partition("/")
            value = rest
            places = [p / rest for p in parents] + [p / package / rest for p in parents]
        else:
            value = value.removeprefix("file://")
            places = [folder / directory / value, *(p / value for p in parents), folder / directory / Path(value).name]
        found = _find(value, places, path, fence)
        if element.tag == "mesh" and found.suffix.lower() not in _COMPILER_MESHES:
            raise InputError(
                f"robot file {path} uses the mesh {value!r}",
                why=f"{found.suffix} meshes are not read",
                fix="Convert it to OBJ or STL and name that in the URDF.",
            )
        element.set("filename", str(found))
    # Links stay bodies of their own (no fusing), and a link without an inertial still compiles.
    options = {"meshdir": "", "strippath": "false", "discardvisual": "false", "fusestatic": "false"}
    options |= {"boundmass": "1e-4", "boundinertia": "1e-7", "balanceinertia": "true"}
    for name, text in options.items():
        compiler.set(name, text)
    return ET.tostring(tree, encoding="unicode")
