package cli

import (
	"context"
	"io"
	"path/filepath"
	"time"

	"github.com/tech-renaissance/trbench/bench"
	"github.com/tech-renaissance/trbench/results"
	"github.com/tech-renaissance/trbench/workloads"
)

// Env is the outside world as a command sees it.
type Env struct {
	Context context.Context // done on Ctrl-C
	Stdin   io.Reader
	Stdout  io.Writer
	Stderr  io.Writer
	// StdoutLost says that what is written to Stdout goes nowhere unasked:
	// the program was started with it closed.
	StdoutLost bool
	// Terminal says that Stderr is watched by a person.
	Terminal bool
	// Columns is the terminal's width now; nil, or 0, is unknown.
	Columns func() int
	Args    []string // without the program's name
	Getenv  func(string) string
	WorkDir string // what relative file names on the command line are relative to
	Now     func() time.Time
	Engine  Engine
	// Program is the file that this program was started from, and Name what it is
	// called as. Worker processes are of Executable, or of Program where that is
	// unknown. Without a program replicates run in this process.
	Program, Name string
	// Executable is a file that has the bytes of this program as it runs; empty is
	// unknown.
	Executable string
	// RunProgram runs another trbench with the words of its command line. A
	// nil one starts a process.
	RunProgram func(ctx context.Context, program string, words []string) error
	// GPULibraries are those that the command line named; worker processes are
	// told them.
	GPULibraries Libraries
	// Machine reads the environment block; nil reads none.
	Machine func(context.Context, Device) results.Environment
	// Readings reads what changes from minute to minute of the machine as a
	// device sees it; nil reads nothing.
	Readings func(context.Context, string) []results.Reading
}

// Engine is what runs steps. Its fields are functions so that a test can put
// others in their place.
type Engine struct {
	// Devices lists the devices this build knows, usable or not, in the order
	// --device=auto tries them; or the one with a name. No other is looked at.
	Devices func(name string) []Device
	// UseLibraries says where the GPU's libraries are: what is not empty wins
	// over what the engine was made with, and is opened. It is called before
	// anything else of the engine. The error is a [*bench.InputError].
	UseLibraries func(Libraries) error
	// Libraries lists the GPU's libraries, opened or not.
	Libraries func() []LibraryState
	// RunCell runs one replicate of a cell in all its configurations: verified
	// first, then timed. Modes that disagree are a [*bench.DisagreementError]; a
	// context that ends, an error that wraps context.Canceled.
	RunCell bench.RunCell
	// Tool says what became of the tool that the environment names, and attaches
	// it; nil says nothing.
	Tool func() Tool
	// Profile runs the one configuration of a request for a profiler.
	Profile func(context.Context, bench.CellRequest) (results.Verify, error)
	// Machine reads the environment block as a device sees it.
	Machine func(context.Context, Device) results.Environment
	// Readings reads what changes from minute to minute as the named device
	// sees it.
	Readings func(context.Context, string) []results.Reading
	// CheckTrace says in one sentence why what the named device does cannot be
	// recorded; nil if it can. It looks for the profiler, and starts it if try is
	// set, which must not come before anything is measured.
	CheckTrace func(name string, try bool) error
	// CalibrateTrace measures what recording does on the named device and what one
	// launch costs. What could be measured comes beside the error.
	CalibrateTrace func(name string) (*results.TraceCalibration, error)
	// Tuned says what a device runs a cell's operators on, and as what, with a
	// tuning that nothing is timed for; nil where no device has a choice.
	Tuned func(cell results.CellKey, tune string) (workloads.Target, *results.TuningChoice, error)
	// Captured prepares a cell in each configuration, on the device as Tuned left
	// it, and says what that took and what graphs there are. Nothing is timed.
	Captured func(ctx context.Context, cell results.CellKey, ways []results.ConfigurationKey) ([]results.Configuration, error)
	// Verify runs the fixed matrix. The report is usable beside an error, so
	// far as it got.
	Verify func(context.Context, bench.VerifyRequest) (bench.VerifyReport, error)
}

// Device is a kind of machine that --device can name.
type Device struct {
	Name        string
	Description string
	MaxRanks    int
	// MemoryBytes is what the arenas of all ranks on this device's memory may
	// take together; 0 if unknown.
	MemoryBytes int64
	// Kernels are the operator sets it has, the default first; KernelsHint says
	// how to get those it lacks.
	Kernels     []string
	KernelsHint string
	// Launchers are who can submit eager operators, the default first;
	// LaunchersHint says how to get others.
	Launchers     []string
	LaunchersHint string
	// Missing says in a few words why the device cannot be used; empty if it can.
	Missing string
	// Refused says that the device, or what drives it, is there and cannot be used
	// as it is: --device=auto does not take another one in silence.
	Refused bool
	Target  workloads.Target
}

// path makes a file name of the command line absolute, keeping a separator at
// its end, which means a folder.
func (e *Env) path(name string) string {
	if name == "" || filepath.IsAbs(name) {
		return name
	}
	joined := filepath.Join(e.WorkDir, name)
	if last := name[len(name)-1]; last == filepath.Separator {
		joined += string(filepath.Separator)
	}
	return joined
}

// variable is a variable of the process's environment; empty where there is
// none, or no environment.
func (e *Env) variable(name string) string {
	if e.Getenv == nil {
		return ""
	}
	return e.Getenv(name)
}
