#!/bin/sh
# What node-problem-detector runs (gpu-monitor.json): npd_check.py beside this file, with nothing of the environment.
# Exit 1 makes GPUProblem True and cordons nodes, and it is also what Python exits with when it is itself broken: so it
# is believed only with a reason on standard output.
line=$("${SICKBAY_PYTHON:-python3}" -ISEB "${0%/*}/npd_check.py" "$@")
code=$?
if [ -z "$line" ]; then
  echo "the check itself failed with code $code: see node-problem-detector's log"
  exit 2
fi
printf '%s\n' "$line"
exit "$code"
