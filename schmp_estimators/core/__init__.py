"""What every algorithm stands on: the programming model, its engines, and the places where they work."""
