"""The health check suite as a person or a scheduler runs it: which checks, in which order, with what result.

`cli/check` calls `runner.run_suite`; the agent uses `asking` and `exclusive`. Result files, names and exit codes are
the original suite's (originals 002.1), so that its users can move over. The checks themselves live in checks/.
"""
