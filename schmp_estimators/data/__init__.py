"""The door for input, and the blocks in which data and models travel."""
