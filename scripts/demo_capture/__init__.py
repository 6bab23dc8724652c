"""The bundled demo capture: its world, its motion, its light and its cameras. Used by scripts/make_demo."""
