"""The data of topic models, as shards."""
