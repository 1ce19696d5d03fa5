"""What is kept in files: checkpoints, their parts, and how a file is replaced in one step."""
