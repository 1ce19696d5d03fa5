"""What it costs to predict a response wrongly."""
