"""What outlives a process: checkpoints."""
