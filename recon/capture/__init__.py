"""Videos and image folders in, frames on a common clock out."""

from recon.capture.check import check_capture, examine, refuse_unusable
from recon.capture.finding import Finding
from recon.capture.match import Match, match_cameras
from recon.capture.plate import temporal_plate
from recon.capture.session import Capture, open_capture
from recon.capture.store import FrameStore, build_store, open_store
from recon.capture.stream import CameraStream

__all__ = [
    "Capture",
    "CameraStream",
    "Finding",
    "FrameStore",
    "Match",
    "build_store",
    "check_capture",
    "examine",
    "match_cameras",
    "open_capture",
    "open_store",
    "refuse_unusable",
    "temporal_plate",
]
