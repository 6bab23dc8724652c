"""Foundation: errors, events, files, checkpoints, config, seeding, devices, console.

Imports nothing else of ours, and torch only inside the functions that need it.
"""
