"""Things that move as one: found, shaped and tracked from what differs from the still picture of every camera."""
