#!/usr/bin/env bash
# The GPU tests: built where Go is, run where a GPU is.
#
#   scripts/gpu-test.sh              build everything into build/gpu and build/gpu.tar.gz
#   scripts/gpu-test.sh run [NAME]   run all, or the named suites, on a machine that has
#                                    neither Go nor a network
#   scripts/gpu-test.sh sanitize     memcheck, racecheck and initcheck on a small net
#   scripts/gpu-test.sh list         the suites
#
# run and sanitize work in the repository's tree (tests read their testdata)
# and unpack build/gpu.tar.gz themselves. Logs go to the folder OUT (default
# build/gpu/logs): gpu-test.log holds every suite's output, summary.txt what is
# printed last, launch_floor.jsonl the C figures. LIMIT is how many seconds the
# whole may take (default 570); a suite that no longer fits is named as not run.
set -uo pipefail
cd "$(dirname "$0")/.."
gpu=build/gpu

# Suites in the order they run: name, package, most seconds, more arguments.
suites() {
	cat <<-'EOF'
		driver     internal/cuda/driver            60
		cupti      internal/cuda/cupti             60
		calibrate  internal/device/cuda/calibrate  120
		golden     internal/golden                 180
		cuda       internal/device/cuda            240
		verify     internal/verify                 400
		dnn        internal/device/cuda/dnn        400
	EOF
}

# flags are what a suite is run with beside -test.v.
flags() {
	case $1 in
	dnn) echo "-test.run=TestGPULibraries|TestGPUAgainstCPU|TestGPUStem|TestGPUSubmit|TestGPUFused" ;;
	esac
}

build() {
	set -e
	rm -rf "$gpu" && mkdir -p "$gpu"
	while read -r name pkg _; do
		CGO_ENABLED=0 go test -c -ldflags "-s -w" -o "$gpu/$name.test" "./$pkg"
	done < <(suites)
	CGO_ENABLED=0 go build -ldflags "-s -w" -o "$gpu/trbench" ./cmd/trbench
	if [ -e /usr/include/cuda.h ] || [ -e /usr/local/cuda/include/cuda.h ]; then
		# A toolkit brings a stub to link with. What is built needs the C
		# library (of this machine's version or newer) and the driver's
		# libcuda.so.1, nothing else.
		CGO_ENABLED=1 CGO_LDFLAGS="${CGO_LDFLAGS:-} -L/usr/lib/x86_64-linux-gnu/stubs -L/usr/local/cuda/lib64/stubs" \
			go build -tags gorgonia -ldflags "-s -w" -o "$gpu/trbench-gorgonia" ./cmd/trbench
		if readelf -d "$gpu/trbench-gorgonia" | grep NEEDED | grep -v 'libcuda\.so\.1\|libc\.so\.6\|libpthread\.so\.0\|libdl\.so\.2'; then
			echo "gpu-test.sh: trbench-gorgonia needs more than the C library and libcuda" >&2
			exit 1
		fi
	else
		echo "gpu-test.sh: no cuda.h: trbench-gorgonia is left out" >&2
	fi
	if command -v nvcc >/dev/null; then
		floor
	else
		echo "gpu-test.sh: no nvcc: launch_floor is built where the tests run" >&2
	fi
	for peer in "${PEER:-}" shared/peers/torch_step.py ../shared/peers/torch_step.py; do
		if [ -n "$peer" ] && [ -f "$peer" ]; then
			cp "$peer" "$gpu/torch_step.py"
			break
		fi
	done
	tar -C build -czf build/gpu.tar.gz gpu
	ls -l "$gpu"
	du -h build/gpu.tar.gz
	echo "carry build/gpu.tar.gz, then: scripts/gpu-test.sh run"
}

# floor builds the C loops. The program carries PTX, which any driver takes.
floor() {
	nvcc -O2 -std=c++17 -gencode arch=compute_80,code=compute_80 -o "$gpu/launch_floor" scripts/launch_floor.cu -lcuda &&
		nvcc -O2 -std=c++17 -x c++ -shared -Xcompiler -fPIC -cudart none -DFLOOR_LIBRARY -o "$gpu/liblaunch_floor.so" scripts/launch_floor.cu -lcuda
}

# prepare unpacks what was carried, and finds the driver's folder.
prepare() {
	if [ -f build/gpu.tar.gz ] && { [ ! -d "$gpu" ] || [ build/gpu.tar.gz -nt "$gpu" ]; }; then
		tar -C build -xzf build/gpu.tar.gz && touch "$gpu"
	fi
	if [ ! -x "$gpu/trbench" ]; then
		echo "gpu-test.sh: $gpu is empty; build it where Go is: scripts/gpu-test.sh" >&2
		exit 2
	fi
	for dir in /usr/local/nvidia/lib64 /usr/local/nvidia/lib; do
		[ -d "$dir" ] && LD_LIBRARY_PATH=${LD_LIBRARY_PATH:+$LD_LIBRARY_PATH:}$dir
	done
	export LD_LIBRARY_PATH=${LD_LIBRARY_PATH:-}
	unset CUDA_LAUNCH_BLOCKING
	if ! "$gpu/launch_floor" >/dev/null 2>&1 && command -v nvcc >/dev/null; then
		floor # the C library of this machine may be an older one
	fi
	out=$(mkdir -p "${OUT:-$gpu/logs}" && cd "${OUT:-$gpu/logs}" && pwd)
	if [ -z "$out" ]; then
		echo "gpu-test.sh: no folder for logs: OUT=${OUT:-}" >&2
		exit 2
	fi
}

run() {
	prepare
	local root=$PWD log=$out/gpu-test.log summary=$out/summary.txt bad=0 limit=${LIMIT:-570}
	: >"$log"
	: >"$summary"
	{
		date -u
		uname -r
		nvidia-smi --query-gpu=name,driver_version,clocks.sm,clocks.mem,power.draw,temperature.gpu --format=csv 2>&1
		"$gpu/trbench" info
	} >>"$log" 2>&1
	if [ $# -eq 0 ]; then
		set -- floor $(suites | cut -f1 -d' ')
	fi
	export TRBENCH_GPU=${TRBENCH_GPU:-1} TRBENCH_TEST_GPU=1 TRBENCH_FLOOR=${TRBENCH_FLOOR:-$root/$gpu/liblaunch_floor.so}
	local want name pkg most
	for want in "$@"; do
		local begin=$SECONDS left=$((limit - SECONDS)) rc=0
		if [ "$want" = floor ]; then
			timeout 60 "$gpu/launch_floor" >"$out/launch_floor.jsonl" 2>>"$log" || rc=$?
			printf '%-10s rc %d, %d figures, %d s\n' floor "$rc" "$(wc -l <"$out/launch_floor.jsonl")" $((SECONDS - begin)) >>"$summary"
			[ "$rc" -eq 0 ] || bad=1
			continue
		fi
		read -r name pkg most < <(suites | awk -v n="$want" '$1 == n') || true
		if [ -z "${name:-}" ]; then
			echo "$want: no such suite" >>"$summary"
			bad=1
			continue
		fi
		if [ "$left" -lt 20 ]; then
			printf '%-10s NOT RUN: the time is up\n' "$name" >>"$summary"
			bad=1
			name=
			continue
		fi
		[ "$most" -lt "$left" ] || most=$left
		local part=$out/.$name.log
		printf '\n===== %s\n' "$name" >>"$log"
		# shellcheck disable=SC2046 # flags are words
		(cd "$pkg" && timeout -k 10 "$most" "$root/$gpu/$name.test" -test.v -test.timeout="${most}s" $(flags "$name") ${FLAGS:-}) >"$part" 2>&1 || rc=$?
		cat "$part" >>"$log"
		printf '%-10s rc %d, %d passed, %d failed, %d skipped, %d s\n' "$name" "$rc" \
			"$(grep -c '^ *--- PASS' "$part")" "$(grep -c '^ *--- FAIL' "$part")" "$(grep -c '^ *--- SKIP' "$part")" \
			$((SECONDS - begin)) >>"$summary"
		grep -E '^ *--- FAIL|^panic:|^fatal error:' "$part" | head -20 >>"$summary"
		if [ "$rc" -ne 0 ]; then
			bad=1
			grep -E '_test\.go:[0-9]+:' "$part" | cut -c1-240 | uniq -c | head -12 >>"$summary"
		fi
		if [ "$name" = calibrate ]; then # the table of Go against C
			grep -A40 '^what  *block' "$part" | sed '/^---/,$d' >>"$summary"
		fi
		rm -f "$part"
		name=
	done
	[ "$bad" -eq 0 ] && echo "all passed" >>"$summary" || echo "NOT all passed" >>"$summary"
	cat "$summary"
	return "$bad"
}

# sanitize runs every tool over one step of each mode, on both kernel sets; what
# libraries report is listed. It runs a test and not the program, since a child
# process, calibration and the choice of plans took over a minute a tool. TUNING
# holds words of --tune, MOST the seconds that a tool may take on a kernel set.
sanitize() {
	prepare
	local root=$PWD log=$out/sanitize.log summary=$out/sanitize.txt tool set rc limit=${LIMIT:-570} left most=${MOST:-120}
	: >"$log"
	: >"$summary"
	export TRBENCH_GPU=1 TRBENCH_TUNING=${TUNING:-}
	for set in builtin cudnn; do
		for tool in memcheck racecheck initcheck; do
			left=$((limit - SECONDS))
			if [ "$left" -lt 20 ]; then
				echo "$tool $set: NOT RUN: the time is up" >>"$summary"
				continue
			fi
			printf '\n===== %s %s\n' "$tool" "$set" >>"$log"
			rc=0
			(cd internal/verify && timeout "$((left < most ? left : most))" compute-sanitizer --tool "$tool" --print-limit 20 --error-exitcode 9 \
				"$root/$gpu/verify.test" -test.v -test.run "^TestOneStep\$/^cuda-$set\$") >"$out/.part" 2>&1 || rc=$?
			cat "$out/.part" >>"$log"
			echo "$tool $set: rc $rc, $(grep -c '^ *--- PASS: TestOneStep/' "$out/.part") passed, $(grep -h 'ERROR SUMMARY\|RACECHECK SUMMARY' "$out/.part" | tail -1)" >>"$summary"
			grep -o ' in [A-Za-z_0-9:<>]*.*' "$out/.part" | grep '========= *\|(' | cut -c1-120 | sort | uniq -c | sort -rn | head -5 >>"$summary"
		done
	done
	rm -f "$out/.part"
	cat "$summary"
}

case ${1:-build} in
build) build ;;
run)
	shift
	run "$@"
	;;
sanitize) sanitize ;;
list) suites ;;
*)
	sed -n '2,20p' "$0" >&2
	exit 2
	;;
esac
