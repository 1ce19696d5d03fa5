"""Schedules: which shards meet which blocks, and which parameters are updated next."""
