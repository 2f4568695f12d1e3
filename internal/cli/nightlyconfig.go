package cli

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"math"
	"os"
	"path/filepath"
	"reflect"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/goccy/go-yaml"
	"github.com/spf13/pflag"

	"github.com/tech-renaissance/trbench/bench"
	"github.com/tech-renaissance/trbench/bench/guard"
	"github.com/tech-renaissance/trbench/results"
	"github.com/tech-renaissance/trbench/results/history"
	"github.com/tech-renaissance/trbench/workloads"
)

// nightlyConfig is what the file of nightly's --config says. Names of files
// are relative to its folder.
type nightlyConfig struct {
	// Run has flags of trbench run, separated by blanks: what is measured each
	// night.
	Run string `yaml:"run"`
	// History is the folder, Page the file; empty for results/nightly and
	// page.html in it.
	History string `yaml:"history"`
	Page    string `yaml:"page"`
	// BaseCommand is another trbench, by which a confirmation measures base again
	// beside head; empty for the program that the baseline kept.
	BaseCommand string `yaml:"base_command"`
	// Deadline is how long a night may take; empty for as long as it takes.
	Deadline string   `yaml:"deadline"`
	Allow    []string `yaml:"allow"`
	// ConfirmProcesses are those of each side.
	ConfirmProcesses int             `yaml:"confirm_processes"`
	Sentinel         sentinelConfig  `yaml:"sentinel"`
	Retention        retentionConfig `yaml:"retention"`

	dir      string
	text     string // of the file
	deadline time.Duration
}

type sentinelConfig struct {
	Off bool   `yaml:"off"`
	Run string `yaml:"run"`
	// Processes are those of each side.
	Processes int `yaml:"processes"`
	// SubGraph is where the slowdown is put.
	SubGraph string `yaml:"sub_graph"`
}

type retentionConfig struct {
	Full      *int   `yaml:"full"`
	Weeks     *int   `yaml:"weeks"`
	Timelines *int   `yaml:"timelines"`
	MaxBytes  *int64 `yaml:"max_bytes"`
}

func (r retentionConfig) rule() history.Retention {
	out := history.DefaultRetention()
	if r.Full != nil {
		out.Full = *r.Full
	}
	if r.Weeks != nil {
		out.Weeks = *r.Weeks
	}
	if r.Timelines != nil {
		out.Timelines = *r.Timelines
	}
	if r.MaxBytes != nil {
		out.MaxBytes = *r.MaxBytes
	}
	return out
}

// nightProcesses are those of a night: fewer cannot carry many rows.
const nightProcesses = 8

// maxConfigBytes is far above any configuration.
const maxConfigBytes = 1 << 20

// readNightly reads and checks a configuration. The error is a
// [*bench.InputError].
func (env *Env) readNightly(name string) (*nightlyConfig, error) {
	bad := func(format string, args ...any) (*nightlyConfig, error) {
		return nil, &bench.InputError{Name: "--config " + name, Reason: fmt.Sprintf(format, args...), Hint: "trbench nightly --help has one"}
	}
	if name == "" {
		return nil, &bench.InputError{Name: "--config", Reason: "is missing: it names the file that says what to run", Hint: "trbench nightly --help has one"}
	}
	path := env.path(name)
	f, err := os.Open(path)
	if err != nil {
		return bad("cannot be opened: %v", unwrapPath(err))
	}
	defer f.Close()
	text, err := io.ReadAll(io.LimitReader(f, maxConfigBytes+1))
	switch {
	case err != nil:
		return bad("cannot be read: %v", unwrapPath(err))
	case len(text) > maxConfigBytes:
		return bad("is larger than %d bytes", maxConfigBytes)
	}
	c := &nightlyConfig{
		dir: filepath.Dir(path), text: string(text), History: defaultHistory, ConfirmProcesses: guard.ConfirmProcesses,
		Sentinel: sentinelConfig{Run: "--workload=golden-tiny --batch=4 --mode=eager", Processes: nightProcesses, SubGraph: workloads.OptimizerUpdate.String()},
	}
	var raw any
	d := yaml.NewDecoder(bytes.NewReader(text))
	err = d.Decode(&raw)
	if err == nil && raw != nil {
		if wrong := wrongKind(raw, reflect.TypeFor[nightlyConfig](), ""); wrong != "" {
			return bad("%s", wrong)
		}
		if d.Decode(new(any)) == nil {
			return bad("has more than one document: a line --- ends the first")
		}
		err = yaml.NewDecoder(bytes.NewReader(text), yaml.Strict()).Decode(c)
	}
	if err != nil && !errors.Is(err, io.EOF) {
		first, _, _ := strings.Cut(yaml.FormatError(err, false, false), "\n")
		return bad("is not understood: %s", strings.TrimSpace(first))
	}
	if c.History == "" {
		c.History = defaultHistory
	}
	c.History = c.place(c.History)
	if c.Page == "" {
		c.Page = filepath.Join(c.History, "page.html")
	}
	c.Page = c.place(c.Page)
	if c.BaseCommand != "" {
		c.BaseCommand = c.place(c.BaseCommand)
		if info, err := os.Stat(c.BaseCommand); err != nil || info.IsDir() || info.Mode()&0o111 == 0 {
			return bad("names the base_command %s, which is no program", c.BaseCommand)
		}
	}
	if c.Deadline != "" {
		if c.deadline, err = time.ParseDuration(c.Deadline); err != nil || c.deadline <= 0 {
			return bad("has the deadline %q, which is no time such as 3h", c.Deadline)
		}
	}
	for _, a := range c.Allow {
		if !bedField(a) {
			return nil, &bench.InputError{Name: "--config " + name, Reason: fmt.Sprintf("allows %q, which is no field of the machine", a), Hint: "trbench info lists the fields"}
		}
	}
	least, _ := guard.Need(1, 1, 1, guard.DefaultOptions())
	switch {
	case len(strings.Fields(c.Run)) == 0:
		return bad("has nothing to run: run has flags of trbench run")
	case c.ConfirmProcesses < least || c.ConfirmProcesses > bench.MaxProcesses:
		return bad("has confirm_processes %d, which must be %d to %d: fewer cannot confirm one row", c.ConfirmProcesses, least, bench.MaxProcesses)
	case c.Sentinel.Processes < least || c.Sentinel.Processes > bench.MaxProcesses:
		return bad("has sentinel processes %d, which must be %d to %d", c.Sentinel.Processes, least, bench.MaxProcesses)
	case !slices.ContainsFunc(allSubGraphs(), func(g workloads.SubGraph) bool { return g.String() == c.Sentinel.SubGraph }):
		return bad("names the sub_graph %q, which no step has", c.Sentinel.SubGraph)
	}
	if r := c.Retention.rule(); r.Full < 1 || r.Weeks < 0 || r.Timelines < 0 || r.MaxBytes < 0 {
		return bad("has a retention that keeps less than one night")
	}
	return c, nil
}

// wrongKind says in words what of a value is not of the kind that its field
// takes; empty if all is. The decoder's own words name types of this program, and
// it makes whole numbers of others.
func wrongKind(v any, t reflect.Type, name string) string {
	if v == nil {
		return ""
	}
	for t.Kind() == reflect.Pointer {
		t = t.Elem()
	}
	takes := ""
	switch t.Kind() {
	case reflect.Struct:
		m, ok := v.(map[string]any)
		if !ok {
			takes = "names with values, as run: --batch=1"
			break
		}
		for i := range t.NumField() {
			if key := t.Field(i).Tag.Get("yaml"); key != "" {
				if wrong := wrongKind(m[key], t.Field(i).Type, strings.TrimPrefix(name+"."+key, ".")); wrong != "" {
					return wrong
				}
			}
		}
		return ""
	case reflect.Slice:
		list, ok := v.([]any)
		if !ok {
			takes = "a list, as [a, b]"
			break
		}
		for _, one := range list {
			if wrong := wrongKind(one, t.Elem(), name); wrong != "" {
				return wrong
			}
		}
		return ""
	case reflect.Bool:
		if _, ok := v.(bool); !ok {
			takes = "true or false"
		}
	case reflect.String:
		switch v.(type) {
		case map[string]any, []any:
			takes = "text"
		}
	case reflect.Int, reflect.Int64:
		switch n := v.(type) {
		case int64, int:
		case uint64:
			if n > math.MaxInt64 {
				takes = "a smaller number"
			}
		default:
			takes = "a whole number"
		}
	}
	if takes == "" {
		return ""
	}
	if name == "" {
		return fmt.Sprintf("takes %s, not %s", takes, kindOf(v))
	}
	return fmt.Sprintf("has %s, which takes %s, not %s", name, takes, kindOf(v))
}

// kindOf is a value in words.
func kindOf(v any) string {
	switch v.(type) {
	case map[string]any:
		return "names with values"
	case []any:
		return "a list"
	}
	text := fmt.Sprint(v)
	if runes := []rune(text); len(runes) > 40 {
		text = string(runes[:40]) + "..."
	}
	return strconv.Quote(text)
}

func allSubGraphs() []workloads.SubGraph {
	var out []workloads.SubGraph
	for g := range workloads.NumSubGraphs {
		out = append(out, g)
	}
	return out
}

func unwrapPath(err error) error {
	var p *os.PathError
	if errors.As(err, &p) {
		return p.Err
	}
	return err
}

// place makes a name of the configuration absolute.
func (c *nightlyConfig) place(name string) string {
	if filepath.IsAbs(name) {
		return name
	}
	return filepath.Join(c.dir, name)
}

// plan checks flags of run as nightly uses them, and gives the plan. What they
// name of ways and amounts, but not of cells, is in ways.
func (env *Env) nightlyPlan(of string, flags []string, processes int) (plan bench.Plan, ways []string, err error) {
	cmd, o := runCommand(env)
	cmd.SetFlagErrorFunc(nil)
	own := []string{"out", "resume", "json", "progress"}
	if err := cmd.ParseFlags(append([]string{fmt.Sprintf("--processes=%d", processes)}, flags...)); err != nil {
		if errors.Is(err, pflag.ErrHelp) {
			err = errors.New("--help is nothing to run")
		}
		return plan, nil, inConfig(of, flagProblem(err))
	}
	if args := cmd.Flags().Args(); len(args) > 0 {
		return plan, nil, inConfig(of, fmt.Errorf("%q is no flag", args[0]))
	}
	cells := []string{"workload", "batch", "gpus", "precision", "optimizer", "ema", "smoothing", "freeze-stem", "resolution", "last-batch", "variants",
		"kernels", "device", "processes", "budget", "trace", "trace-steps"}
	cmd.Flags().Visit(func(f *pflag.Flag) {
		if slices.Contains(own, f.Name) {
			err = inConfig(of, fmt.Errorf("--%s is nightly's own", f.Name))
		}
		if !slices.Contains(cells, f.Name) {
			ways = append(ways, "--"+f.Name+"="+f.Value.String())
		}
	})
	if err != nil {
		return plan, nil, err
	}
	if o.trace.dir != "" {
		return plan, nil, inConfig(of, fmt.Errorf("--trace=%s names a folder; nightly keeps timelines in the history: --trace alone", o.trace.dir))
	}
	o.json = true // nothing is written, so there is no place to check
	if plan, _, err = o.validate(); err != nil {
		return plan, nil, inConfig(of, err)
	}
	return plan, ways, nil
}

func inConfig(of string, err error) error {
	var input *bench.InputError
	hint := ""
	if errors.As(err, &input) {
		hint = input.Hint
	}
	return &bench.InputError{Name: "--config: " + of + ":", Reason: err.Error(), Hint: hint}
}

// cellFlagsOf are the flags of run that name one cell of a plan.
func cellFlagsOf(k results.CellKey, prepareAll bool) []string {
	two := func(a, b int) string { return fmt.Sprintf("%d,%d", a, b) }
	words := []string{
		"--device=" + k.Device, "--kernels=" + k.Kernels, "--workload=" + k.Workload, fmt.Sprintf("--batch=%d", k.Batch), fmt.Sprintf("--gpus=%d", k.GPUs),
		"--precision=" + k.Precision, "--optimizer=" + k.Optimizer, fmt.Sprintf("--ema=%v", k.EMA), fmt.Sprintf("--smoothing=%g", k.Smoothing),
		fmt.Sprintf("--freeze-stem=%v", k.Frozen), "--resolution=" + two(k.Resolution.Begin, k.Resolution.Final), "--last-batch=" + two(k.LastBatch.Train, k.LastBatch.Val),
	}
	if prepareAll && k.Variant == defaultVariant {
		return append(words, "--variants=all")
	}
	return append(words, fmt.Sprintf("--variants=%d", k.Variant))
}
