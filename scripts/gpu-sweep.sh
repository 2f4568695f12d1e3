#!/usr/bin/env bash
# The sweep on a GPU, in windows that are shorter than it is.
#
#   scripts/gpu-sweep.sh            go on where the last call stopped
#   scripts/gpu-sweep.sh list       what is done, begun and left
#   scripts/gpu-sweep.sh ratios     step times beside the peer's, turn by turn, of the records in DIR
#   scripts/gpu-sweep.sh NAME...    these steps alone (names or patterns)
#
# Steps run worst first: the points that are compared with the peer, the
# largest batches before the small ones. At a peer point the peer and one
# process of ours take turns, REPEATS times; ours are the first processes of
# the record of eight, each added to it by --resume. The peer compiles once and
# stays, idle, while ours runs (PEER_STAYS=0: a process of its own each turn).
# A step that the window cuts off is gone on with by the next call: trbench
# stores after every process and resumes.
#
#   DIR      where records, raw.log and marks go (default build/sweep); it is all
#            that has to survive between windows
#   OUT      if set, DIR goes there as sweep.tar.gz at the end
#   SEED     a sweep.tar.gz of an earlier window, unpacked into an empty DIR
#   LIMIT    seconds of this window (default 570)
#   TRBENCH  the program (default build/gpu/trbench, from scripts/gpu-test.sh)
#   PEER     the peer's Python file (default build/gpu/torch_step.py)
#   REPEATS  turns at a peer point (default 5)
#   TUNE     what --tune is given (default auto, which times the ways first; the
#            word list of an earlier choice saves that time)
#
# raw.log holds every command, what it printed, and the GPU's clocks before it.
set -uo pipefail
cd "$(dirname "$0")/.."
root=$PWD
DIR=${DIR:-build/sweep}
LIMIT=${LIMIT:-570}
REPEATS=${REPEATS:-5}
if [ -f build/gpu.tar.gz ] && { [ ! -d build/gpu ] || [ build/gpu.tar.gz -nt build/gpu ]; }; then
	tar -C build -xzf build/gpu.tar.gz && touch build/gpu
fi
TRBENCH=${TRBENCH:-$root/build/gpu/trbench}
PEER=${PEER:-$root/build/gpu/torch_step.py}
for dir in /usr/local/nvidia/lib64 /usr/local/nvidia/lib; do
	[ -d "$dir" ] && export LD_LIBRARY_PATH=${LD_LIBRARY_PATH:+$LD_LIBRARY_PATH:}$dir
done
unset CUDA_LAUNCH_BLOCKING
mkdir -p "$DIR/peer" || exit 2
DIR=$(cd "$DIR" && pwd)
if [ -n "${SEED:-}" ] && [ ! -e "$DIR/raw.log" ]; then
	tar -C "$DIR" -xzf "$SEED" || exit 2
fi
# The peer compiles its kernels once a machine.
export TORCHINDUCTOR_FX_GRAPH_CACHE=1 TORCHINDUCTOR_CACHE_DIR=${TORCHINDUCTOR_CACHE_DIR:-$root/build/inductor}
# No record of this sweep rests on a plan for fewer images than it says.
common=(--device=cuda --optimizer=sgd --seed=1)
tune=(--tune="${TUNE:-auto}")
all=(--mode=eager,graph,step --sync=event,host)

# size says how much is timed: blocks of about a tenth of a second, and fewer
# where a step takes long. Warm-up is fixed: verification ran before it.
size() {
	case $1-$2 in
	resnet50-256) echo "--steps=8 --blocks=4 --warmup=4" ;;
	resnet50-*) echo "--steps=10 --blocks=6 --warmup=5" ;;
	*) echo "--steps=30 --blocks=6 --warmup=20" ;;
	esac
}

# steps prints one a line: name, seconds it needs at least, command's words.
# "peer" is the peer's turn at a point, "turn" brings a record to so many
# processes, "run" makes a record.
steps() {
	local point r
	for point in resnet50:256 resnet18-cifar:256 resnet50:64 resnet18-cifar:16; do
		local model=${point%:*} batch=${point#*:}
		for r in $(seq "$REPEATS"); do
			local modes=cgraph needs=20
			[ "$r" -gt 1 ] || modes=${PEER_FIRST:-cgraph,graph,eager} needs=60
			echo "peer-$model-$batch-$r $needs peer $model $batch $modes"
			echo "turn-$model-$batch-$r 20 turn $model-$batch-amp $r --workload=$model --batch=$batch --precision=amp ${all[*]} $(size "$model" "$batch")"
		done
		echo "$model-$batch-amp 30 turn $model-$batch-amp 8 --workload=$model --batch=$batch --precision=amp ${all[*]} $(size "$model" "$batch")"
	done
	echo "resnet50-16-amp 45 run --workload=resnet50 --batch=16 --precision=amp ${all[*]} $(size resnet50 16)"
	echo "peer-resnet50-16-1 60 peer resnet50 16 eager,cgraph"
	echo "resnet50-16-dispatch 45 run --workload=resnet50 --batch=16 --precision=amp --mode=eager,step --sync=event --dispatch-ns=0,2000,5000,10000,20000,40000 $(size resnet50 16)"
	echo "resnet18-cifar-64-amp 30 run --workload=resnet18-cifar --batch=64 --precision=amp ${all[*]} $(size resnet18-cifar 64)"
	for batch in 4 1; do
		echo "resnet50-$batch-amp 30 run --workload=resnet50 --batch=$batch --precision=amp ${all[*]} $(size resnet50 "$batch")"
	done
	echo "resnet18-cifar-1-amp 30 run --workload=resnet18-cifar --batch=1 --precision=amp ${all[*]} $(size resnet18-cifar 1)"
	echo "resnet50-64-fp32 45 run --workload=resnet50 --batch=64 --precision=fp32 ${all[*]} $(size resnet50 64)"
	echo "resnet18-cifar-16-fp32 30 run --workload=resnet18-cifar --batch=16 --precision=fp32 ${all[*]} $(size resnet18-cifar 16)"
	echo "resnet18-cifar-16-gorgonia 30 gorgonia --workload=resnet18-cifar --batch=16 --precision=amp --mode=eager --sync=event --kernels=builtin --launcher=purego,gorgonia $(size resnet18-cifar 16)"
}

left() { echo $((LIMIT - SECONDS)); }

say() { printf '%s\n' "$*" | tee -a "$DIR/raw.log"; }

# logged runs a command for at most what is left of the window, all of it into
# the raw log. SIGINT lets trbench store what it has.
logged() {
	{
		printf '\n### %s\n' "$(date -u +%FT%TZ)"
		nvidia-smi --query-gpu=clocks.sm,clocks.mem,power.draw,temperature.gpu,clocks_event_reasons.active --format=csv,noheader 2>&1
		printf '$'
		printf ' %q' "$@"
		printf '\n'
	} >>"$DIR/raw.log"
	timeout -s INT -k 15 "$(left)" "$@" >"$DIR/.out" 2>"$DIR/.err"
	local rc=$?
	cat "$DIR/.err" "$DIR/.out" >>"$DIR/raw.log"
	printf '# rc %d\n' "$rc" >>"$DIR/raw.log"
	return "$rc"
}

# record makes a record, or goes on with one, to so many processes.
record() {
	local program=$1 name=$2 processes=$3
	shift 3
	local file=$DIR/$name.json
	if [ -f "$file" ]; then
		logged "$program" run --resume="$file" --processes="$processes"
	else
		logged "$program" run "${common[@]}" "${tune[@]}" "$@" --processes="$processes" --out="$file"
	fi
}

# peer has its turn: model, batch, modes. One process serves all turns, so that
# each model is compiled once; between turns it frees its memory.
server='
import contextlib, gc, io, sys
source = compile(open(sys.argv[1]).read(), sys.argv[1], "exec")
for line in sys.stdin:
    model, batch, mode = line.split()
    sys.argv = [sys.argv[0], "--model", model, "--batch", batch, "--mode", mode]
    out, rc = io.StringIO(), 0
    try:
        with contextlib.redirect_stdout(out):
            exec(source, {"__name__": "__main__"})
    except BaseException as e:
        rc, out = 1, io.StringIO(repr(e) + "\n")
    gc.collect()
    import torch
    torch.cuda.synchronize(); torch.cuda.empty_cache()
    print(out.getvalue() + "end %d" % rc, flush=True)
'
peer() {
	if [ "${PEER_STAYS:-1}" = 0 ]; then
		logged python3 "$PEER" --model "$1" --batch "$2" --mode "$3"
		return
	fi
	if [ -z "${SERVER_PID:-}" ]; then
		coproc SERVER { python3 -c "$server" "$PEER" 2>>"$DIR/raw.log"; }
	fi
	printf '\n### %s\n$ peer --model %s --batch %s --mode %s\n' "$(date -u +%FT%TZ)" "$1" "$2" "$3" >>"$DIR/raw.log"
	: >"$DIR/.out"
	: >"$DIR/.err"
	echo "$1 $2 $3" >&"${SERVER[1]}" || return 1
	local line
	while IFS= read -r -t "$(left)" line <&"${SERVER[0]}"; do
		case $line in
		'end 0') return 0 ;;
		'end '*) cp "$DIR/.out" "$DIR/.err"; return 1 ;;
		esac
		printf '%s\n' "$line" | tee -a "$DIR/.out" >>"$DIR/raw.log"
	done
	return 124
}

# step runs one. A failure that is not the window's end is marked: the next call
# does not repeat it; remove the mark to try again.
step() {
	local name=$1 kind=$3 rc=0
	shift 3
	case $kind in
	run) record "$TRBENCH" "$name" 3 "$@" || rc=$? ;;
	turn) record "$TRBENCH" "$@" || rc=$? ;;
	gorgonia)
		if [ -x "$TRBENCH-gorgonia" ]; then
			# What gorgonia.org/cu cannot do, neither launcher does here.
			local others=("${tune[@]}")
			tune=(--tune=none)
			record "$TRBENCH-gorgonia" "$name" 3 "$@" || rc=$?
			tune=("${others[@]}")
		else
			say "$name: there is no $TRBENCH-gorgonia; build it where cuda.h is"
			rc=1
		fi
		;;
	peer)
		if [ -f "$PEER" ]; then
			peer "$1" "$2" "$3" || rc=$?
			grep '^{' "$DIR/.out" >"$DIR/peer/$name.jsonl"
		else
			say "$name: there is no peer: PEER=$PEER"
			rc=1
		fi
		;;
	esac
	if [ "$rc" -eq 0 ]; then
		touch "$DIR/.$name.done"
	elif [ "$(left)" -le 1 ] || [ "$rc" -eq 124 ] || [ "$rc" -eq 130 ] || [ "$rc" -eq 137 ]; then
		say "$name: cut off after $SECONDS s"
		return 1
	else
		touch "$DIR/.$name.failed"
		say "$name: FAILED, rc $rc: $(tail -1 "$DIR/.err" 2>/dev/null)"
	fi
}

state() {
	if [ -e "$DIR/.$1.done" ]; then
		echo done
	elif [ -e "$DIR/.$1.failed" ]; then
		echo failed
	elif [ -e "$DIR/$1.json" ]; then
		echo begun
	else
		echo left
	fi
}

chosen() {
	local name=$1 p
	shift
	[ $# -gt 0 ] || return 0
	for p in "$@"; do
		# shellcheck disable=SC2053 # a pattern
		[[ $name == $p ]] && return 0
	done
	return 1
}

list() {
	steps | while read -r name _; do printf '%-8s %s\n' "$(state "$name")" "$name"; done
}

# ratios prints, for each peer point, ours over the peer's in each turn, by the
# medians that both print.
ratios() {
	python3 - "$DIR" <<-'EOF'
		import glob, gzip, json, os, re, statistics, sys
		rows = {}
		for path in sorted(glob.glob(os.path.join(sys.argv[1], "peer", "peer-*-1.jsonl"))):
		    model, batch = re.fullmatch(r"peer-(.*)-(\d+)-1\.jsonl", os.path.basename(path)).groups()
		    record = os.path.join(sys.argv[1], "%s-%s-amp.json" % (model, batch))
		    record = next((f for f in (record, record + ".gz") if os.path.exists(f)), None)
		    if record is None:
		        continue
		    ours = {}  # by process: the median over its blocks, as the record reduces it
		    for c in json.load((gzip.open if record.endswith("gz") else open)(record))["cells"][0]["configurations"]:
		        if c["key"]["mode"] == "step":
		            for m in c["metrics"]:
		                if m["name"] == "step_time_ns":
		                    by = {}
		                    for s in m["samples"]:
		                        by.setdefault(s["process"], []).append(s["value"])
		                    ours = {p: statistics.median(v) for p, v in by.items()}
		    for turn in range(1, 100):
		        peer = path[:-len("1.jsonl")] + "%d.jsonl" % turn
		        if not os.path.exists(peer):
		            break
		        theirs = [json.loads(l)["step_ms"] * 1e6 for l in open(peer) if json.loads(l)["mode"] == "cgraph"]
		        if theirs and turn - 1 in ours:
		            rows.setdefault((model, int(batch)), []).append((ours[turn - 1], theirs[0]))
		for (model, batch), pairs in sorted(rows.items()):
		    r = [a / b for a, b in pairs]
		    print("%-16s %4d  ours %8.1f us  peer's best %8.1f us  ratio %.3f (%.3f to %.3f, %d turns)" % (
		        model, batch, statistics.median(a for a, _ in pairs) / 1e3, statistics.median(b for _, b in pairs) / 1e3,
		        statistics.median(r), min(r), max(r), len(r)))
	EOF
}

pack() {
	[ -n "${OUT:-}" ] || return 0
	mkdir -p "$OUT" && tar -C "$DIR" --exclude=.out --exclude=.err -czf "$OUT/sweep.tar.gz" . && ls -l "$OUT/sweep.tar.gz"
}

case ${1:-} in
list)
	list
	exit
	;;
ratios)
	ratios
	exit
	;;
esac
if [ ! -x "$TRBENCH" ]; then
	echo "gpu-sweep.sh: there is no $TRBENCH; scripts/gpu-test.sh builds it" >&2
	exit 2
fi
say "window of $LIMIT s begins $(date -u +%FT%TZ)"
while read -r name needs words <&3; do
	chosen "$name" "$@" || continue
	case $(state "$name") in done | failed) continue ;; esac
	if [ "$(left)" -lt "$needs" ]; then
		say "$name: $(left) s are too few"
		continue
	fi
	begin=$SECONDS
	# shellcheck disable=SC2086 # words
	step "$name" "$needs" $words || break
	printf '%-34s %s, %d s\n' "$name" "$(state "$name")" $((SECONDS - begin))
done 3< <(steps)
rm -f "$DIR/.out" "$DIR/.err"
list | cut -f1 -d' ' | sort | uniq -c
ratios
pack
