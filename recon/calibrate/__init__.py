"""Calibrations, and the first 3D points they give."""

from recon.calibrate.rig import find_calibration, load_rig

__all__ = ["find_calibration", "load_rig"]
