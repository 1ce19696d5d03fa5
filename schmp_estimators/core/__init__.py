"""The base of all algorithms: the programming model, its engines, and the places where they run."""
