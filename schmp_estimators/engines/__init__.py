"""Engines run programs on schedules.  They know no statistics."""
