"""`python -m benchmarks.throughput`: the same as `plait bench stage`, needing no Ray."""

import sys

from benchmarks.throughput.main import main

sys.exit(main())
