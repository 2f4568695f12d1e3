package cli

import (
	"fmt"
	"strings"

	"github.com/tech-renaissance/trbench/nvtx"
)

// profiler is a tool that profile can run steps under.
type profiler struct {
	name, title string
	// steps are shown to it unless --steps says otherwise.
	steps int
	// without says what is left of it on a device without kernels.
	without string
	// reports are the extensions of what it writes, place the option that says
	// where; noReport is advice for when there is none.
	reports  []string
	place    string
	noReport string
	// verb comes before its options. joined says that a long option and its
	// value are one word.
	verb   string
	joined bool
	// short are one-letter names of options that are set.
	short   map[string]string
	options func(gpu bool, report string) []toolOption
}

// toolOption is an option of a tool, without a value for a switch.
type toolOption struct{ name, value string }

const (
	stepsForSystems = 5
	// stepsForCompute is 1: each kernel is run again for every group of
	// counters.
	stepsForCompute = 1
	// launchesForCompute bounds how many kernels are profiled: at some tenths
	// of a second each, minutes.
	launchesForCompute = "200"
)

// profilerNamed knows the tools by their program's name. Their options are
// those of nsys profile (Nsight Systems User Guide, "CLI Profile Command
// Switch Options") and of ncu (Nsight Compute CLI, "Command Line Options";
// --graph-profiling since 2023.1).
func profilerNamed(name string) (*profiler, error) {
	switch name {
	case "nsys":
		return &profiler{
			name: name, title: "Nsight Systems", steps: stepsForSystems, without: ": it shows ranges alone",
			reports: []string{".nsys-rep", ".qdstrm"}, place: "--output",
			noReport: "no capture may have begun: it waits for the driver's cuProfilerStart, or without a GPU for the range " + nvtx.ProfileName,
			verb:     "profile", joined: true,
			short: map[string]string{"-t": "--trace", "-s": "--sample", "-c": "--capture-range", "-p": "--nvtx-capture", "-o": "--output", "-f": "--force-overwrite"},
			options: func(gpu bool, report string) []toolOption {
				o := []toolOption{{"--trace", "cuda,nvtx"}, {"--cuda-graph-trace", "node"}, {"--sample", "none"}, {"--cpuctxsw", "none"}}
				if gpu {
					o = append(o, toolOption{"--capture-range", "cudaProfilerApi"})
				} else {
					o = append(o, toolOption{"--capture-range", "nvtx"}, toolOption{"--nvtx-capture", nvtx.ProfileName + "@" + nvtx.Domain})
				}
				// Otherwise the process is ended with its capture.
				return append(o, toolOption{"--capture-range-end", "stop"}, toolOption{"--output", report}, toolOption{"--force-overwrite", "true"})
			},
		}, nil
	case "ncu":
		return &profiler{
			name: name, title: "Nsight Compute", steps: stepsForCompute, without: ", and writes no report",
			reports: []string{".ncu-rep"}, place: "--export",
			noReport: "a GPU's counters may be closed to users: its own words then hold ERR_NVGPUCTRPERM",
			short:    map[string]string{"-c": "--launch-count", "-o": "--export", "-f": "--force-overwrite"},
			options: func(gpu bool, report string) []toolOption {
				return []toolOption{
					{"--nvtx", ""}, {"--nvtx-include", nvtx.Domain + "@" + nvtx.StepName + "/"}, {"--profile-from-start", "off"},
					{"--graph-profiling", "node"}, {"--target-processes", "all"}, {"--clock-control", "none"},
					{"--launch-count", launchesForCompute}, {"--export", report}, {"--force-overwrite", ""},
				}
			},
		}, nil
	}
	return nil, &usageError{text: fmt.Sprintf("profile knows nsys and ncu behind --, not %q", name), hint: "trbench profile [flags] -- nsys"}
}

// optionName is the name in a word of a command line: --name or --name=value.
func optionName(word string) string {
	name, _, _ := strings.Cut(word, "=")
	return name
}

// command is the tool's command line up to the program it runs: what is set
// here, but for options that the caller gives too, which tools refuse twice.
// placed says that the report goes where it is set here.
func (p *profiler) command(given []string, gpu bool, report string) (words []string, placed bool) {
	if p.verb != "" {
		if len(given) > 0 && given[0] == p.verb {
			given = given[1:]
		}
		words = append(words, p.verb)
	}
	theirs := map[string]bool{}
	for _, w := range given {
		name := optionName(w)
		if long := p.short[name]; long != "" {
			name = long
		}
		theirs[name] = true
	}
	for _, o := range p.options(gpu, report) {
		switch {
		case theirs[o.name]:
		case o.value == "":
			words = append(words, o.name)
		case p.joined:
			words = append(words, o.name+"="+o.value)
		default:
			words = append(words, o.name, o.value)
		}
	}
	return append(words, given...), !theirs[p.place]
}
