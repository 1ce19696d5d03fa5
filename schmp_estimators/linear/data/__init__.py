"""The data of sparse linear models, as shards."""
