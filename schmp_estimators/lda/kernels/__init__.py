"""The inner loops of topic models."""
