"""The trainer: it knows tensors and the vector-environment protocol, nothing of splats.

One readable file per algorithm (`bc`, `ppo`) over shared, tested functions
(`returns`, `distributions`, `buffers`, `nets`) and one loop (`runner`).
"""
