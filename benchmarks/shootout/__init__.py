"""zodbshootout, unmodified, over storages with this cache and without.

Run it by ``python -m benchmarks.shootout``.
"""
