"""Tasks as data: where things start, what counts as success, what is rewarded, and a scripted expert."""
