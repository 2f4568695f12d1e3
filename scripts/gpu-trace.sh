#!/usr/bin/env bash
# What CUPTI records on a real GPU: built where Go is, run where a GPU is.
#
#   scripts/gpu-trace.sh         build into build/trace and build/trace.tar.gz
#   scripts/gpu-trace.sh run     the tests of internal/cuda/cupti on the GPU, then traced runs; needs
#                                neither Go nor a network, and prints compact tables last
#
# Logs go to the folder OUT (default build/trace/logs). TRBENCH_CUPTI says where
# libcupti is, if the loader and the usual folders do not. LIMIT is how many
# seconds the whole may take (default 110).
set -uo pipefail
cd "$(dirname "$0")/.."
kit=build/trace

build() {
	set -e
	rm -rf "$kit" && mkdir -p "$kit"
	CGO_ENABLED=0 go test -c -ldflags "-s -w" -o "$kit/cupti.test" ./internal/cuda/cupti
	CGO_ENABLED=0 go build -ldflags "-s -w" -o "$kit/trbench" ./cmd/trbench
	tar -C build -czf build/trace.tar.gz trace
	du -h build/trace.tar.gz
	echo "carry build/trace.tar.gz, then: scripts/gpu-trace.sh run"
}

run() {
	local limit=${LIMIT:-110} rc=0 root=$PWD
	if [ -f build/trace.tar.gz ] && { [ ! -d "$kit" ] || [ build/trace.tar.gz -nt "$kit" ]; }; then
		tar -C build -xzf build/trace.tar.gz && touch "$kit"
	fi
	if [ ! -x "$kit/cupti.test" ]; then
		echo "gpu-trace.sh: $kit is empty; build it where Go is: scripts/gpu-trace.sh" >&2
		exit 2
	fi
	local out log
	out=$(mkdir -p "${OUT:-$kit/logs}" && cd "${OUT:-$kit/logs}" && pwd) || exit 2
	log=$out/gpu-trace.log
	for dir in /usr/local/nvidia/lib64 /usr/local/nvidia/lib; do
		[ -d "$dir" ] && LD_LIBRARY_PATH=${LD_LIBRARY_PATH:+$LD_LIBRARY_PATH:}$dir
	done
	export LD_LIBRARY_PATH=${LD_LIBRARY_PATH:-} TRBENCH_TEST_GPU=1
	unset CUDA_LAUNCH_BLOCKING
	{
		date -u
		nvidia-smi --query-gpu=name,driver_version,clocks.sm,clocks.mem,power.draw,temperature.gpu --format=csv 2>&1
		find / -xdev -name 'libcupti.so*' 2>/dev/null | head -20
	} >"$log"
	# A test of its own process each: a recording that goes wrong takes no other with it.
	local name bad=0
	for name in $("$kit/cupti.test" -test.list '^Test(LiveFields|Spin|Graph|GraphTrace|FewBuffers|Twice|Installed|GPU.*)$' | grep '^Test'); do
		local left=$((limit - SECONDS))
		if [ "$left" -lt 10 ]; then
			echo "--- NOT RUN: $name: the time is up" >>"$log"
			bad=1
			continue
		fi
		rc=0
		(cd internal/cuda/cupti && timeout -k 5 $((left < 40 ? left : 40)) "$root/$kit/cupti.test" -test.v -test.run "^$name\$") >>"$log" 2>&1 || rc=$?
		if [ "$rc" -ne 0 ]; then
			bad=1
			echo "--- $name: rc $rc" >>"$log"
		fi
	done
	# Traced runs: tables and records into OUT, timelines into OUT/traces.
	local run=$kit/trbench cell workload batch left
	: >"$out/run.txt"
	for cell in resnet18-cifar:16 resnet50:64; do
		workload=${cell%:*} batch=${cell#*:} left=$((limit - SECONDS))
		if [ "$left" -lt 15 ]; then
			echo "--- NOT RUN: run --trace $workload batch $batch: the time is up" | tee -a "$log" >>"$out/run.txt"
			bad=1
			continue
		fi
		rc=0
		timeout -k 5 "$left" "$run" run --device=cuda --workload="$workload" --batch="$batch" --mode=eager,step --precision=amp --quick \
			--trace="$out/traces" --trace-steps=5 --out="$out/traced-$workload-b$batch.json" >>"$out/run.txt" 2>>"$log" || rc=$?
		if [ "$rc" -ne 0 ]; then
			bad=1
			echo "--- run --trace $workload batch $batch: rc $rc" >>"$log"
		fi
	done
	cat "$out/run.txt" >>"$log"
	ls -l "$out/traces" >>"$log" 2>&1
	grep -E '^ *--- (FAIL|SKIP|NOT RUN|Test)|^panic:|^fatal error:|^--- ' "$log" | grep -v -- '--- PASS'
	grep -E '_test\.go:[0-9]+: ' "$log" | grep -v TABLE | cut -c1-260 | head -30
	grep -vE '^Warning' "$out/run.txt"
	sed -n 's/^ *[a-z_]*_test\.go:[0-9]*: TABLE //p' "$log"
	printf '%s tests passed, %s failed, in %d s\n' "$(grep -c '^--- PASS' "$log")" "$(grep -c '^--- FAIL' "$log")" "$SECONDS"
	[ "$bad" -eq 0 ] && echo "all passed" || echo "NOT all passed"
	return "$bad"
}

case ${1:-build} in
build) build ;;
run) run ;;
*)
	sed -n '2,12p' "$0" >&2
	exit 2
	;;
esac
