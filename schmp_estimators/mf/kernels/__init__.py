"""The inner loops of matrix factorisation."""
