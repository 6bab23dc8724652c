"""Videos and image folders in, frames on a common clock out."""

from recon.capture.match import Match, match_cameras
from recon.capture.session import Capture, open_capture
from recon.capture.stream import CameraStream

__all__ = ["Capture", "CameraStream", "Match", "match_cameras", "open_capture"]
