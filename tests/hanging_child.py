"""A sampling process that takes a request and never answers."""

import time

time.sleep(600)
