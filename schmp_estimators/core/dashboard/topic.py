"""What the events of fits are called on the scheduler."""

#: The topic of the events.
TOPIC = "schmp"
