"""The C core (``_store``): everything that must take nanoseconds."""
