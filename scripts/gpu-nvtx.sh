#!/usr/bin/env bash
# What NVIDIA's own tools see of the NVTX ranges: built where Go is, run where a
# GPU is.
#
#   scripts/gpu-nvtx.sh          build into build/nvtx and build/nvtx.tar.gz
#   scripts/gpu-nvtx.sh run      libcupti as the NVTX tool, then ncu and nsys where they are found; needs
#                                neither Go nor a network, and prints a compact table last
#
# It takes about half a minute. What to expect: CUPTI attached; as many kernels
# under trbench@step/ as a step's graphs have, fewer but some under
# DEEP_FWD_BWD, none under a range that does not exist. Where the GPU's counters are
# closed to users, ncu's own error is quoted instead. Logs go to the folder OUT
# (default build/nvtx/logs). LIMIT is how many seconds the whole may take
# (default 110); DEVICE is cuda, or cpu for a rehearsal without kernels.
set -uo pipefail
cd "$(dirname "$0")/.."
kit=build/nvtx

build() {
	set -e
	rm -rf "$kit" && mkdir -p "$kit"
	CGO_ENABLED=0 go build -ldflags "-s -w" -o "$kit/trbench" ./cmd/trbench
	tar -C build -czf build/nvtx.tar.gz nvtx
	du -h build/nvtx.tar.gz
	echo "carry build/nvtx.tar.gz, then: scripts/gpu-nvtx.sh run"
}

# first prints the first of its arguments that exists and is no folder.
first() {
	local f
	for f in "$@"; do
		[ -f "$f" ] && { echo "$f" && return; }
	done
	return 1
}

run() {
	local limit=${LIMIT:-110} device=${DEVICE:-cuda} out log bad=0
	if [ -f build/nvtx.tar.gz ] && { [ ! -d "$kit" ] || [ build/nvtx.tar.gz -nt "$kit" ]; }; then
		tar -C build -xzf build/nvtx.tar.gz && touch "$kit"
	fi
	if [ ! -x "$kit/trbench" ]; then
		echo "gpu-nvtx.sh: $kit is empty; build it where Go is: scripts/gpu-nvtx.sh" >&2
		exit 2
	fi
	out=$(mkdir -p "${OUT:-$kit/logs}" && cd "${OUT:-$kit/logs}" && pwd) || exit 2
	log=$out/gpu-nvtx.log
	for dir in /usr/local/nvidia/lib64 /usr/local/nvidia/lib; do
		[ -d "$dir" ] && LD_LIBRARY_PATH=${LD_LIBRARY_PATH:+$LD_LIBRARY_PATH:}$dir
	done
	export LD_LIBRARY_PATH=${LD_LIBRARY_PATH:-}
	unset CUDA_LAUNCH_BLOCKING NVTX_INJECTION64_PATH
	for dir in /usr/local/cuda*/bin /opt/nvidia/nsight-compute/* /opt/nvidia/nsight-systems/*/bin; do
		[ -d "$dir" ] && PATH=$PATH:$dir
	done
	local say=$out/summary.txt
	: >"$log"
	: >"$say"
	# try NAME COMMAND...: within what is left of the time, output to the log and to NAME.txt.
	try() {
		local name=$1 left=$((limit - SECONDS)) rc=0
		shift
		if [ "$left" -lt 5 ]; then
			echo "the time is up" >"$out/$name.txt" && return 124
		fi
		timeout -k 5 "$left" "$@" >"$out/$name.txt" 2>&1 || rc=$?
		{ echo "== $name: $*" && cat "$out/$name.txt" && echo "== rc $rc"; } >>"$log"
		return $rc
	}
	local cell=(--device="$device" --workload=golden-tiny --batch=2)
	[ "$device" = cuda ] && cell+=(--kernels=builtin)

	# CUPTI takes the ranges: the client speaks to a tool of NVIDIA's.
	local cupti
	cupti=$(first "${TRBENCH_CUPTI:-}" /usr/local/cuda*/extras/CUPTI/lib64/libcupti.so /usr/local/cuda*/lib64/libcupti.so \
		/usr/lib/*-linux-gnu/libcupti.so* /opt/*/lib/python3*/site-packages/nvidia/c*/lib/libcupti.so* \
		/usr/local/lib/python3*/*-packages/nvidia/c*/lib/libcupti.so*)
	if [ -n "$cupti" ]; then
		NVTX_INJECTION64_PATH=$cupti try cupti "$kit/trbench" info || bad=1
		echo "cupti: $(grep '^NVTX: ' "$out/cupti.txt")" >>"$say"
		# What the ranges cost a step with a tool attached that records nothing.
		local name cost=(run "${cell[@]}" --mode=eager,graph,step --processes=1 --blocks=2 --steps=200 --warmup=20 --out="$out/")
		try alone "$kit/trbench" "${cost[@]}" || bad=1
		NVTX_INJECTION64_PATH=$cupti try attached "$kit/trbench" "${cost[@]}" || bad=1
		for name in alone attached; do
			grep -E '^(workload|golden-tiny) ' "$out/$name.txt" | grep -v /device | head -4 | sed "s/^/$name: /" >>"$say"
		done
		grep -h 'tool_attached' "$out/attached.txt" >>"$say" || bad=1
	else
		echo "cupti: libcupti.so was not found; TRBENCH_CUPTI names it" >>"$say"
	fi

	# Nsight Compute filters by the ranges.
	if command -v ncu >/dev/null; then
		local include want
		want=$("$kit/trbench" run "${cell[@]}" --mode=graph --quick --json 2>>"$log" | sed -n 's/^ *"kernels": \([0-9][0-9]*\).*/\1/p' | head -1)
		for include in trbench@step/ trbench@step/DEEP_FWD_BWD/ trbench@none/; do
			try ncu "$kit/trbench" profile "${cell[@]}" --mode=graph --steps=1 --warmup=2 --quick --out="$out/ncu" -- \
				ncu --metrics gpu__time_duration.sum --launch-count 2000 --nvtx-include "$include"
			echo "ncu: $(grep -c '==PROF== Profiling' "$out/ncu.txt") kernels under $include of ${want:-unknown} in a step" >>"$say"
			grep -h '==ERROR==' "$out/ncu.txt" | head -2 >>"$say"
		done
	else
		echo "ncu: not found" >>"$say"
	fi

	# Nsight Systems captures the steps alone.
	if command -v nsys >/dev/null; then
		local mode
		for mode in eager step; do
			try "nsys-$mode" "$kit/trbench" profile "${cell[@]}" --mode=$mode --steps=3 --warmup=2 --quick --out="$out/nsys-$mode" -- nsys || bad=1
			try "ranges-$mode" nsys stats --report nvtx_sum --format csv --output - "$out/nsys-$mode.nsys-rep"
			echo "nsys $mode: $(grep '^Report: ' "$out/nsys-$mode.txt" || tail -1 "$out/nsys-$mode.txt"); $(grep -c . "$out/ranges-$mode.txt") lines of nvtx_sum, steps: $(grep -E 'trbench:step|:step"?(,|$)' "$out/ranges-$mode.txt" | head -1)" >>"$say"
		done
	else
		echo "nsys: not found" >>"$say"
	fi
	cat "$say"
	exit $bad
}

case ${1:-build} in
build) build ;;
run) run ;;
*) echo "usage: scripts/gpu-nvtx.sh [run]" >&2 && exit 2 ;;
esac
