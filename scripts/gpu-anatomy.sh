#!/usr/bin/env bash
# Where a step's time goes, and what each way to run it is worth, on one GPU.
#
#   scripts/gpu-anatomy.sh build   build/anatomy/cuda.test, where Go is
#   scripts/gpu-anatomy.sh         run it on a machine that has neither Go nor a network
#
# It prints the tables last: T1 step times by tune, T2 what launching a graph
# takes the host, T3 operators by time. OUT (default build/anatomy) gets
# anatomy.log with all of it and every operator. CELLS are
# model:batch[:tune,tune]; OPERATORS the tunes whose operators are timed beside
# base's; BUDGET is the seconds after which no cell begins.
set -uo pipefail
cd "$(dirname "$0")/.."
if [ "${1:-}" = build ]; then
	CGO_ENABLED=0 go test -c -ldflags "-s -w" -o build/anatomy/cuda.test ./internal/device/cuda
	exit
fi
OUT=${OUT:-build/anatomy}
mkdir -p "$OUT"
for dir in /usr/local/nvidia/lib64 /usr/local/nvidia/lib; do
	[ -d "$dir" ] && LD_LIBRARY_PATH=${LD_LIBRARY_PATH:+$LD_LIBRARY_PATH:}$dir
done
export LD_LIBRARY_PATH=${LD_LIBRARY_PATH:-} TRBENCH_GPU=1
export TRBENCH_ANATOMY_BUDGET=${BUDGET:-170} TRBENCH_ANATOMY_OPERATORS=${OPERATORS:-}
few=base,serial+pdl,hazards,hazards+pdl,hazards+one+pdl
most=base,pdl,serial,serial+pdl,hazards,hazards+pdl,one,hazards+one+pdl
export TRBENCH_ANATOMY=${CELLS:-resnet18-cifar:16 resnet50:64:$most resnet50:256:$few resnet18-cifar:256:$few}
nvidia-smi --query-gpu=name,driver_version,clocks.sm,clocks.mem,power.draw,temperature.gpu --format=csv,noheader
build/anatomy/cuda.test -test.run '^TestAnatomy$' -test.v -test.timeout "${LIMIT:-290}s" >"$OUT/anatomy.log" 2>&1
rc=$?
grep -E '^(---|    ---|panic|fatal)|_test.go:|FAILED|NOT RUN|plans chosen' "$OUT/anatomy.log" | cut -c1-300 | head -40
for table in T3 T2 T1; do
	grep "^ANATOMY $table" "$OUT/anatomy.log" | cut -c9-
done
echo "rc $rc, $SECONDS s"
exit $rc
