"""The data of matrix factorisation, as shards."""
