"""The one extension; everything else is in pyproject.toml.

ZODBCACHE_DEBUG=1 builds with asserts, AddressSanitizer and
UndefinedBehaviorSanitizer; ZODBCACHE_WERROR=1 makes every warning an error.
"""

import os
from glob import glob

from setuptools import Extension
from setuptools import setup

CORE = "src/zodbcache/_core"
SANITIZE = ["-fsanitize=address,undefined", "-fno-sanitize-recover=undefined"]

compile_args = ["-std=c11", "-Wall", "-Wextra"]
link_args = []
if os.environ.get("ZODBCACHE_DEBUG") == "1":
    compile_args += ["-O1", "-g", "-UNDEBUG", "-fno-omit-frame-pointer", *SANITIZE]
    link_args += SANITIZE
else:
    compile_args += ["-O3"]
if os.environ.get("ZODBCACHE_WERROR") == "1":
    compile_args += ["-Werror"]

setup(
    ext_modules=[
        Extension(
            "zodbcache._core._store",
            sources=sorted(glob(f"{CORE}/**/*.c", recursive=True)),
            depends=sorted(glob(f"{CORE}/**/*.h", recursive=True)),
            include_dirs=[CORE, f"{CORE}/memory", f"{CORE}/temporary", f"{CORE}/file"],
            extra_compile_args=compile_args,
            extra_link_args=link_args,
        )
    ]
)
