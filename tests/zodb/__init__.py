"""ZODB's and ZEO's own tests, run over wrapped storages."""
