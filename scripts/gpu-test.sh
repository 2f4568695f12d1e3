#!/usr/bin/env bash
# The GPU tests: built where Go is, run where a GPU is.
#
#   scripts/gpu-test.sh              build everything into build/gpu and build/gpu.tar.gz
#   scripts/gpu-test.sh run [NAME]   run all, or the named suites, on a machine that has
#                                    neither Go nor a network
#   scripts/gpu-test.sh sanitize     memcheck, racecheck and initcheck on one step of a
#                                    small net in each mode
#   scripts/gpu-test.sh list         the suites
#
# run and sanitize work in the repository's tree (tests read their testdata)
# and unpack build/gpu.tar.gz themselves. Logs go to the folder OUT (default
# build/gpu/logs): gpu-test.log holds every suite's output, summary.txt what is
# printed last, launch_floor.jsonl the C figures, sanitize-TOOL-SET.log and
# sanitize.txt the same of sanitize. LIMIT is how many seconds the whole may take
# (default 570); a suite that no longer fits is named as not run.
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

# own prints the names of the project's own kernels, one a line.
own() {
	sed -n 's/^\.visible \.entry \([A-Za-z0-9_]*\).*/\1/p' internal/device/cuda/kernels/cu/*.ptx | sort -u
}

# reports reads a tool's log and prints one line a report: whose it is, and its
# text. own: the code is one of our kernels; library: of any other kernel;
# call: no kernel's, and no library's function is on the stack; library-call;
# asked: a call of ours whose error is an answer; tool: about the tool itself.
reports() {
	own | awk '
	NR == FNR { ours[$1] = 1; next }
	# How the end of a list of parameters is found, and that a word of a parameter
	# is no address: the calls say so by these codes alone.
	function asked(t) { return t ~ /CUDA_ERROR_INVALID_VALUE.*cuFuncGetParamInfo/ || t ~ /CUDA_ERROR_NOT_FOUND.*cuMemGetAddressRange/ }
	function flush(  who) {
		if (title != "") {
			who = code != "" ? (mine ? "own" : "library") : title ~ /^(Warning|Internal|Error:)/ ? "tool" : lib ? "library-call" : asked(title) ? "asked" : "call"
			print who "\t" title (code != "" ? " | " code : "")
		}
		title = code = ""; mine = lib = 0
	}
	function place(line,  words, n, i) {
		sub(/^=+ */, "", line)
		if (code == "") code = line
		n = split(line, words, /[^A-Za-z0-9_]+/)
		for (i = 1; i <= n; i++)
			if (words[i] in ours || words[i] ~ /^planted_/) mine = 1
	}
	!/^=========/ { next }
	/^========= *$/ { flush(); next }
	/^========= (COMPUTE-SANITIZER|[A-Z]+ SUMMARY|Target application|This tool|Error: (process|Target|No attachable))/ { flush(); next }
	/^========= [^ ]/ {
		if (title != "" || !/^========= (Saved|Host)/) flush()
		title = $0
		sub(/^=+ */, "", title)
		if (/ access at /) { place($0); sub(/ between .*/, "", title) }
		sub(/0x[0-9a-f]+/, "", title)
		next
	}
	/^========= +(and (Read|Write) access |at |(Read|Write) Thread |Device Frame)/ { place($0); next }
	/Host Frame.*(libcudnn|libcublas|libnvrtc|libnvJitLink|libcufft|libcudart)/ { lib = 1 }
	END { flush() }' - "$1"
}

# under runs a test binary under a tool of the sanitizer: under LOG SECONDS TOOL
# FOLDER TEST PATTERN [OPTION...]. It returns 124 where the time was up.
under() {
	local log=$1 seconds=$2 tool=$3 folder=$4 test=$5 pattern=$6
	shift 6
	(cd "$folder" && timeout -k 10 "$seconds" compute-sanitizer --tool "$tool" --target-processes all --print-limit 1000 \
		--error-exitcode 9 "$@" "$root/$gpu/$test" -test.v -test.run "$pattern") >"$log" 2>&1
}

# sanitize runs every tool over one step of each mode, on both kernel sets. It
# runs a test and not the program, since a child process, calibration and the
# choice of plans took over a minute a tool. MOST is how many seconds a tool may
# take on a kernel set, TOOLS and SETS say which, TUNING holds words of --tune.
#
# Each tool is first shown a kernel with the error that it exists for: one that
# does not see it proves nothing, and its rows say so. racecheck and initcheck
# leave the libraries' kernels alone (FILTER=no: they do not), unless the filter
# hides the planted kernel too. initcheck takes an arena that nobody filled, but
# beside libraries a filled one: it does not know what kernels wrote that it
# leaves alone.
#
# A log a tool and set, sanitize-TOOL-SET.log; sanitize.txt has the libraries'
# reports, then ours, then the table. It ends with 1 if our kernels or calls have
# errors or a test failed, and with 3 if that is not known of all.
sanitize() {
	prepare
	local root=$PWD summary=$out/sanitize.txt limit=${LIMIT:-570} most=${MOST:-120} bad=0 unknown=0
	local tool set log rc left begin table theirs ours filter note took
	if ! command -v compute-sanitizer >/dev/null; then
		echo "gpu-test.sh: no compute-sanitizer on PATH: it comes with the CUDA toolkit" >&2
		exit 2
	fi
	table=$out/.table theirs=$out/.theirs ours=$out/.ours
	: >"$table"
	: >"$theirs"
	: >"$ours"
	# The tools' older name for the option takes no expression.
	local pattern option=
	pattern="regex=^($(own | paste -sd'|')|planted_.*)\$"
	if [ "${FILTER:-yes}" = yes ] && compute-sanitizer --help 2>/dev/null | grep -q -e '--kernel-name-exclude'; then
		option=--kernel-name
	fi
	for tool in ${TOOLS:-memcheck racecheck initcheck}; do
		local -a filters=()
		[ "$tool" = memcheck ] || [ -z "$option" ] || filters=("$option" "$pattern")
		local sees=no
		log=$out/sanitize-$tool-planted.log
		while :; do
			rc=0
			left=$((limit - SECONDS))
			[ "$left" -ge 20 ] || break
			TRBENCH_TEST_GPU=1 TRBENCH_PLANTED=$tool under "$log" $((left < 60 ? left : 60)) "$tool" internal/cuda/driver driver.test '^TestPlanted$' "${filters[@]}" || rc=$?
			if grep -q "^=========.*planted_$tool" "$log"; then
				sees=yes
			elif [ ${#filters[@]} -gt 0 ]; then
				filters=() # it hides our kernels as well
				continue
			fi
			break
		done
		for set in ${SETS:-builtin cudnn}; do
			left=$((limit - SECONDS))
			filter=all
			if [ "$left" -lt 20 ]; then
				printf '%s\t%s\t\t\t\t\t\t\t\t\tNOT RUN: the time is up\n' "$tool" "$set" >>"$table"
				unknown=1
				continue
			fi
			[ "$left" -lt "$most" ] || left=$most
			local -a these=()
			if [ "$set" != builtin ] && [ ${#filters[@]} -gt 0 ]; then
				these=("${filters[@]}")
				filter=own
			fi
			local unfilled=
			[ "$tool" != initcheck ] || [ "$set" != builtin ] || unfilled=1
			log=$out/sanitize-$tool-$set.log
			begin=$SECONDS rc=0
			TRBENCH_GPU=1 TRBENCH_TUNING=${TUNING:-} TRBENCH_UNFILLED=$unfilled \
				under "$log" "$left" "$tool" internal/verify verify.test "^TestOneStep\$/^cuda-$set\$" "${these[@]}" || rc=$?
			took=$((SECONDS - begin))
			reports "$log" >"$out/.reports"
			grep '^library' "$out/.reports" | sed "s/^/$tool $set /" >>"$theirs"
			grep '^own\|^call' "$out/.reports" | sed "s/^/$tool $set /" >>"$ours"
			local total passed
			total=$(sed -n 's/^========= [A-Z]* SUMMARY: \([0-9]*\).*/\1/p' "$log" | tail -1)
			passed=$(grep -c '^ *--- PASS: TestOneStep/' "$log")
			note=
			if [ "$rc" -eq 124 ] || [ "$rc" -eq 137 ]; then
				note="did not finish in $left s"
				unknown=1
			elif [ "$passed" -eq 0 ]; then
				note="the test failed: see the log"
				bad=1
			elif [ -z "$total" ]; then
				note="no summary of the tool: see the log"
				unknown=1
			elif [ "$sees" = no ]; then
				note="does not see a planted error"
				unknown=1
			elif grep -q '^tool' "$out/.reports"; then
				note="the tool speaks of itself: $(grep -m1 '^tool' "$out/.reports" | cut -f2 | cut -c1-80)"
			fi
			if grep -q '^own\|^call' "$out/.reports"; then
				bad=1
			fi
			count() { grep -c "^$1	" "$out/.reports"; }
			printf '%s\t%s\t%s\t%s\t%d\t%d\t%d\t%d\t%d\t%s\t%s\n' "$tool" "$set" "$filter" "$took" \
				"$(count own)" "$(count library)" "$(count call)" "$(count asked)" "$(count library-call)" "${total:--}" "$note" >>"$table"
		done
	done
	{
		nvidia-smi --query-gpu=name,driver_version --format=csv,noheader 2>/dev/null
		compute-sanitizer --version 2>/dev/null | grep -i version
		listed "reports in libraries" "$theirs"
		listed "reports in our kernels and calls" "$ours"
		echo
		{
			printf 'tool\tkernels\tchecked\tseconds\tour kernels\tlibrary kernels\tour calls\tasked by error\tlibrary calls\tby the tool\tnote\n'
			cat "$table"
		} | awk -F'\t' '{ printf "%-9s  %-7s  %-7s  %7s  %11s  %15s  %9s  %14s  %13s  %11s  %s\n", $1, $2, $3, $4, $5, $6, $7, $8, $9, $10, $11 }' | sed 's/ *$//'
	} >"$summary"
	rm -f "$table" "$theirs" "$ours" "$out/.reports"
	cat "$summary"
	[ "$bad" -eq 0 ] || return 1
	[ "$unknown" -eq 0 ] || return 3
}

# listed prints what a file of reports holds, the most frequent first.
listed() {
	echo
	echo "$1: $(wc -l <"$2")"
	cut -c1-240 "$2" | sort | uniq -c | sort -rn | head -20
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
	sed -n '2,16p' "$0" >&2
	exit 2
	;;
esac
