"""Cameras, poses, quaternions and spherical harmonics: pure functions on numpy and torch arrays."""
