#!/usr/bin/env bash
# One night of trbench from cron: everything it says goes into a log of its own,
# and what cron should mail, which is nothing when all is well, to stdout.
#
#   nightly.sh CONFIG [TRBENCH]
#
# The exit code is trbench's. Logs lie in nightly-logs beside CONFIG; the last 60
# are kept. Set TRBENCH_NIGHTLY_TRIES to go on so many times with a night that
# something killed (137, 143); 3 unless set.
set -uo pipefail

if [ $# -lt 1 ] || [ $# -gt 2 ]; then
	echo "usage: $0 CONFIG [TRBENCH]" >&2
	exit 2
fi
config=$1
trbench=${2:-trbench}
logs=$(dirname -- "$config")/nightly-logs
if ! mkdir -p -- "$logs"; then
	exit 2
fi
log=$logs/$(date -u +%Y%m%dT%H%M%SZ)-$$.log

code=137
for ((try = 1; try <= ${TRBENCH_NIGHTLY_TRIES:-3}; try++)); do
	# Braces, so that what the shell says of a kill goes into the log as well.
	{ "$trbench" nightly --config="$config"; } >>"$log" 2>&1
	code=$?
	case $code in 137 | 143) echo "killed ($code), try $try" >>"$log" ;; *) break ;; esac
done

case $code in
0) ;;
1) echo "trbench: slower than the baseline, and confirmed" ;;
2) echo "trbench: the night could not be run or compared" ;;
3) echo "trbench: no verdict: it cannot be told, or something is missing" ;;
4) echo "trbench: modes disagree" ;;
*) echo "trbench: ended with $code" ;;
esac
if [ "$code" -ne 0 ]; then
	echo
	tail -n 60 -- "$log"
	echo
	echo "The whole log: $log"
fi

# Names begin with their time, so they sort.
mapfile -t old < <(find "$logs" -maxdepth 1 -name '*.log' | sort | head -n -60)
if [ ${#old[@]} -gt 0 ]; then
	rm -f -- "${old[@]}"
fi
exit "$code"
