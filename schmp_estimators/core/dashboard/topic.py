"""What the events of fits are called on the scheduler."""

#: The topic of what fits tell of themselves.
TOPIC = "schmp"
#: The topic of what ranks did when: messages with the name of the run, the address of the worker, and `spans`, lists of
#: a name, the numbers of the sweep and of the block (-1 where there is none) and of the thread, start and stop in
#: seconds since the epoch.
SPANS = "schmp-spans"
