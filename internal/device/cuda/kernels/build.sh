#!/usr/bin/env bash
# Makes the PTX beside the sources and records what it was made from. It needs
# nvcc 11.8 (Debian: nvidia-cuda-toolkit): a later one emits PTX that older
# drivers refuse.
set -euo pipefail
cd "$(dirname "$0")"
nvcc=${NVCC:-nvcc}
version=$("$nvcc" --version | sed -n 's/.*release \([0-9.]*\), V\([0-9.]*\).*/\2/p')
case $version in
11.8.*) ;;
*)
	echo "build.sh: nvcc $version; the PTX must come from 11.8" >&2
	exit 1
	;;
esac
rm -f cu/*.ptx
for source in cu/*.cu; do
	base=${source%.cu}
	# Products stay apart from sums everywhere but in convolution: see doc.go.
	contract=false
	[[ $base != cu/conv_* ]] || contract=true
	"$nvcc" -ptx -arch=compute_80 -std=c++17 -fmad=$contract "$source" -o "$base.ptx"
	"$nvcc" -ptx -arch=compute_90 -std=c++17 -fmad=$contract "$source" -o "$base.sm90.ptx"
done
NVCC_VERSION=$version go test . -run '^TestGenerated$' -update
