"""Nine kernels timed by themselves, three of each wing, by asv.

``docs/measurements/kernels`` says how to run them.
"""
