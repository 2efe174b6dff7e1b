"""Many processes and threads over one database: every read judged by a record of every commit.

``python -m tests.consistency --help`` runs it for as long as you like.

- ``objects``: what is stored, and how a state tells whose it is.
- ``bases``: the storages below the cache, and the record that the database itself keeps.
- ``worker``, ``sessions``, ``plan``: a process, its connections, and what they decide to do.
- ``journal``: what each thread writes down of what it did and saw.
- ``record``, ``judge``: which of it was wrong.
- ``faults``: storages that are wrong on purpose, which the judge must find out.
- ``run``: all of this together.
"""
