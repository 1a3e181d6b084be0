"""`python -m harness.client`: started by the harness."""

import sys

from harness.client.sampler import Sampler
from harness.instrument import run_instrument

if __name__ == "__main__":
    sys.exit(run_instrument(Sampler))
