"""Real machines behind the Host door: commands under guard, files, the kernel log, the machine's own metadata.

`cli/check` and `agent/` make one LinuxHost and hand it to the checks. Nothing here judges what it reads.
"""
