"""The shell on each node: follow the kernel log, run the light checks, latch verdicts, tell whoever should know.

One noun a file. `process` puts them together, `station` is where everything meets; the rest know only their own matter.
It must never treat anything, and never forget a verdict because it was itself restarted.
"""
