"""The engines: what a program means, and two ways to run it on many workers."""
