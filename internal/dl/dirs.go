package dl

import (
	"os"
	"path/filepath"
	"slices"
)

// SearchDirs lists the folders of this machine where CUDA's libraries are
// commonly found, in order: the folders of $CUDA_HOME and $CUDA_PATH, toolkits under
// /usr/local (newest name last in the alphabet first), Debian's folders, the
// folders where container runtimes put the driver, and the nvidia packages of
// every Python found. Only folders that exist are listed, each once.
func SearchDirs() []string { return searchDirs("/", os.Getenv) }

// searchDirs is SearchDirs below a root, for tests.
func searchDirs(root string, getenv func(string) string) []string {
	var dirs []string
	seen := map[string]bool{}
	add := func(patterns ...string) {
		for _, p := range patterns {
			found, _ := filepath.Glob(filepath.Join(root, p))
			slices.Sort(found)
			slices.Reverse(found)
			for _, d := range found {
				st, err := os.Stat(d)
				if err != nil || !st.IsDir() {
					continue
				}
				if !seen[d] {
					seen[d] = true
					dirs = append(dirs, d)
				}
			}
		}
	}
	for _, v := range []string{"CUDA_HOME", "CUDA_PATH"} {
		if h := getenv(v); h != "" {
			add(h+"/lib64", h+"/lib", h+"/targets/*/lib", h+"/extras/CUPTI/lib64")
		}
	}
	add("usr/local/cuda/lib64", "usr/local/cuda/targets/*/lib", "usr/local/cuda/extras/CUPTI/lib64",
		"usr/local/cuda-*/lib64", "usr/local/cuda-*/targets/*/lib", "usr/local/cuda-*/extras/CUPTI/lib64",
		"usr/lib/x86_64-linux-gnu", "usr/lib/aarch64-linux-gnu",
		"usr/lib/x86_64-linux-gnu/nvidia/current", "usr/lib/aarch64-linux-gnu/nvidia/current",
		"usr/lib64", "usr/lib/wsl/lib",
		"usr/local/nvidia/lib64", "usr/local/nvidia/lib")
	python := func(lib string) {
		for _, packages := range []string{"site-packages", "dist-packages"} {
			add(lib + "/python3*/" + packages + "/nvidia/*/lib")
		}
	}
	if v := getenv("VIRTUAL_ENV"); v != "" {
		python(v + "/lib")
	}
	if h := getenv("HOME"); h != "" {
		python(h + "/.local/lib")
	}
	python("usr/local/lib")
	add("usr/lib/python3/dist-packages/nvidia/*/lib")
	python("usr/lib")
	python("opt/*/.venv/lib")
	python("opt/*/lib")
	return dirs
}
