"""What a user watches: callbacks, records and plots."""
