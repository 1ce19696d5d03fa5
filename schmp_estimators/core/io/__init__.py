"""What goes to files and comes from them."""
