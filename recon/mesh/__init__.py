"""Solid things out of Gaussians: surfaces by depth fusion, convex pieces to collide with, mass, and the gap."""
