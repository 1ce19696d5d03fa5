"""Programs as the serial engine runs them: the definition of what they mean."""

from schmp_estimators.core.serial import SerialRun, Source
from schmp_estimators.core.stages import in_turn


def run_serial(program, shards, n_sweeps, saved=None, first=0, each=in_turn, **options):
    """Yield after each sweep its record, its harvest and all that a restart needs."""
    sources = [Source(lambda shard=shard: shard) for shard in shards]
    run = SerialRun(program, sources, n_sweeps=n_sweeps, saved=saved, first=first, each=each, **options)
    for record in run:
        yield record, run.harvest(), run.save()
