"""Matrix factorisation of ratings."""
