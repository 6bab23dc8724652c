"""Videos of a workstation in, a dynamic 4D Gaussian scene out.

`recon.load_scene(path)` opens a scene folder; everything else lives in the
sub-packages. Importing `recon` itself stays cheap: nothing heavy is loaded
before it is used.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from recon.scene.folder import load_scene as load_scene

__version__ = "0.1.0"
__all__ = ["__version__", "load_scene"]


def __getattr__(name: str) -> Any:
    """Import `load_scene` on first use (it pulls in torch)."""
    if name == "load_scene":
        from recon.scene.folder import load_scene

        return load_scene
    raise AttributeError(f"module 'recon' has no attribute {name!r}")


def __dir__() -> list[str]:
    """List the lazy names too, so that completion finds them."""
    return sorted([*globals(), "load_scene"])
