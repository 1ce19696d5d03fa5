"""Engines, which run programs: one interpreter of their sweeps, for one rank or for many."""
