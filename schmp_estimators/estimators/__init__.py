"""The estimators: parameters, validation and fitted attributes.  No algorithm."""
