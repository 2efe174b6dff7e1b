"""Real processes over one shared cache directory, killed at random, and what they leave behind.

``python -m tests.crash --help`` kills as many as you like.

- ``life``: what one process is to do and how it ends, the same for the same seed.
- ``child``: the process.
- ``record``: every revision that was ever committed, and what a cache file must say by it.
- ``run``: starts the children, kills them, judges the file after each.
- ``interrupts``: what strikes in the middle of something without killing.
"""
