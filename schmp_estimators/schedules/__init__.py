"""Schedules: which parameters are updated where and when.  Reusable by any program."""
