"""The made-up recording that `recon doctor` trains on, under the name the tests use."""

from recon.trials.recording import BALL, SIZE, TinyFrames, ball_center, ray_trace, ring_of_cameras

__all__ = ["BALL", "SIZE", "TinyFrames", "ball_center", "ray_trace", "ring_of_cameras"]
