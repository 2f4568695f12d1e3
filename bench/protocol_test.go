package bench

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"reflect"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/tech-renaissance/trbench/results"
)

// What a worker tells is what its parent puts together again.
func TestServeAndListen(t *testing.T) {
	w := steady(nil)
	req := syntheticPlan(1, 2, configurationKey("eager", "event"), configurationKey("graph", "event")).Request(0, 2, "")
	var want *results.Cell
	run := func(ctx context.Context, r CellRequest) (*results.Cell, error) {
		got, err := w.replicate(ctx, r)
		want = got.Cell
		return got.Cell, err
	}
	asked, err := json.Marshal(req)
	if err != nil {
		t.Fatal(err)
	}
	var out bytes.Buffer
	in, hold := io.Pipe() // stays open, as a parent holds it
	defer hold.Close()
	go func() { _, _ = hold.Write(asked) }()
	if err := Serve(t.Context(), in, &out, run); err != nil {
		t.Fatal(err)
	}
	var phases []string
	req.Events = func(e Event) {
		if e.Phase != "" {
			phases = append(phases, e.Phase)
		}
	}
	got, err := listen(&out, req)
	if err != nil || got.err != nil || got.cell == nil {
		t.Fatal(got, err)
	}
	for i, c := range want.Configurations {
		if !reflect.DeepEqual(got.cell.Configurations[i].Metrics, c.Metrics) {
			t.Errorf("%s: the samples differ", c.Key)
		}
		if c.Metrics[0].Samples[0].Process != 2 {
			t.Errorf("sample %+v", c.Metrics[0].Samples[0])
		}
	}
	if len(phases) < 6 {
		t.Errorf("phases %v", phases)
	}
}

func TestServeTellsOfFailures(t *testing.T) {
	for _, c := range []struct {
		err  error
		want string
	}{
		{&DisagreementError{Tensor: "params"}, `"Tensor":"params"`},
		{errors.New("it broke"), `{"failure":"it broke"}`},
	} {
		var out bytes.Buffer
		in, hold := io.Pipe()
		go func() { _, _ = hold.Write([]byte("{}")) }()
		err := Serve(t.Context(), in, &out, func(context.Context, CellRequest) (*results.Cell, error) { return nil, c.err })
		_ = hold.Close()
		if err != nil || !strings.Contains(out.String(), c.want) {
			t.Errorf("said %q (%v)", out.String(), err)
		}
	}
	if err := Serve(t.Context(), strings.NewReader("hello"), io.Discard, nil); err == nil || !strings.Contains(err.Error(), "read the request") {
		t.Error(err)
	}
}

// When stdin ends the parent is gone, and so is the reason to go on.
func TestServeEndsWithItsParent(t *testing.T) {
	run := func(ctx context.Context, _ CellRequest) (*results.Cell, error) {
		select {
		case <-ctx.Done():
			return nil, context.Cause(ctx)
		case <-time.After(10 * time.Second):
			return nil, errors.New("it went on")
		}
	}
	var out bytes.Buffer
	if err := Serve(t.Context(), strings.NewReader("{}"), &out, run); err != nil || !strings.Contains(out.String(), "the parent process is gone") {
		t.Errorf("said %q (%v)", out.String(), err)
	}
}

// A worker that somebody ends says who, not what it was at.
func TestServeSaysWhatEndedIt(t *testing.T) {
	ctx, end := context.WithCancelCause(t.Context())
	run := func(ctx context.Context, _ CellRequest) (*results.Cell, error) {
		end(errors.New("terminated signal received"))
		<-ctx.Done()
		return nil, fmt.Errorf("warm up eager: %w", ctx.Err())
	}
	var out bytes.Buffer
	in, hold := io.Pipe()
	go func() { _, _ = hold.Write([]byte("{}")) }()
	err := Serve(ctx, in, &out, run)
	_ = hold.Close()
	if want := `{"phase":"open device "}` + "\n" + `{"failure":"the worker process was told to end: terminated signal received"}` + "\n"; err != nil || out.String() != want {
		t.Errorf("said %q (%v), want %q", out.String(), err, want)
	}
}

func TestListenRefuses(t *testing.T) {
	req := syntheticPlan(1, 1, configurationKey("eager", "event")).Request(0, 0, "")
	for _, c := range []struct{ in, want string }{
		{"nonsense\n", "what is no event"},
		{`{"taken":{"configuration":1}}` + "\n", "configuration 1, which it was not asked for"},
		{`{"taken":{"configuration":-1}}` + "\n", "configuration -1"},
		{`{"cell":{}}` + "\n", "other configurations"},
	} {
		if _, err := listen(strings.NewReader(c.in), req); err == nil || !strings.Contains(err.Error(), c.want) {
			t.Errorf("%s: %v", c.in, err)
		}
	}
	// Half a line is what a killed process leaves; it is no answer.
	if a, err := listen(strings.NewReader(`{"cell":{"configurations":[{}]}}`), req); err != nil || a.cell != nil {
		t.Errorf("%+v, %v", a, err)
	}
}

// What is kept of a dying worker's stderr says why it died, in one printable
// line, whatever came before and after.
func TestTail(t *testing.T) {
	long := strings.Repeat("x", 1<<20)
	traces := strings.Repeat("goroutine 7 [running]:\n\tmain.go:3 +0x65\n", 1000)
	for _, c := range []struct{ name, text, want string }{
		{"nothing", "", ""},
		{"one line", "it broke\n", "it broke"},
		{"no newline", "some noise\nit broke", "some noise | it broke"},
		{"no newline before a signal", "SIGABRT: abort", "SIGABRT: abort"},
		{"the last lines", "1\n2\n3\n4\n5\n\n6\n7\n\n", "2 | 3 | 4 | 5 | 6 | 7"},
		{"much noise", strings.Repeat("some noise\n", 100_000) + "the end\n", "some noise | some noise | some noise | some noise | some noise | the end"},
		{"a panic", "noise\npanic: it fell over\n\n" + traces, "panic: it fell over"},
		{"a fatal error", "fatal error: all goroutines are asleep - deadlock!\n\n" + traces, "fatal error: all goroutines are asleep - deadlock!"},
		{"the first panic", "panic: one\n\tpanic: two\n" + traces, "panic: one"},
		// A library's own abort: the reason stands before the signal's name.
		{"an abort", "a\nb\nterminate called after throwing an instance of 'std::bad_alloc'\n  what():  std::bad_alloc\nSIGABRT: abort\nPC=0x40816e m=0 sigcode=0\n\n" + traces,
			"terminate called after throwing an instance of 'std::bad_alloc' | what(): std::bad_alloc | SIGABRT: abort"},
		{"a crash", "SIGSEGV: segmentation violation\nPC=0x0 m=0 sigcode=1\n" + traces, "SIGSEGV: segmentation violation"},
		{"a word like a signal", "SIGNAL lost\nend\n", "SIGNAL lost | end"},
		{"a long line", "begin" + long + "end", "begin" + strings.Repeat("x", 251) + " ... " + strings.Repeat("x", 253) + "end"},
		{"a line that just fits", strings.Repeat("y", 512) + "\n", strings.Repeat("y", 512)},
		{"a long panic", "panic: " + long + "\n" + traces, "panic: " + strings.Repeat("x", 249) + " ... " + strings.Repeat("x", 256)},
		{"bytes that are no text", "a\x00\xff\xfeb\x1b[31mred\x07 \u00fc\n", "a b [31mred \u00fc"},
		{"a progress bar", "10 %\r20 %\rdied\r\n", "10 % | 20 % | died"},
	} {
		t.Run(c.name, func(t *testing.T) {
			for _, chunk := range []int{1, 7, 4096, len(c.text) + 1} {
				if chunk == 1 && len(c.text) > 1e5 {
					continue
				}
				var w tail
				for part := range slices.Chunk([]byte(c.text), chunk) {
					if n, err := w.Write(part); n != len(part) || err != nil {
						t.Fatal(n, err)
					}
				}
				got := w.String()
				if got != c.want || got != w.String() {
					t.Errorf("in parts of %d: %q, want %q", chunk, got, c.want)
				}
			}
		})
	}
}

// A worker that aborts says so in its cell, also behind long stack traces.
func TestAbortedWorker(t *testing.T) {
	req := syntheticPlan(1, 1, configurationKey("eager", "event")).Request(0, 0, "")
	script := `echo '{"phase":"warm up"}'; echo "assertion failed: x > 0" >&2; echo "SIGABRT: abort" >&2; yes "goroutine 1 [running]:" | head -c 1000000 >&2; kill -ABRT $$`
	_, err := Command{Path: "/bin/sh", Args: []string{"sh", "-c", script}}.Run(t.Context(), req)
	var d *DeathError
	if !errors.As(err, &d) || !strings.HasPrefix(d.State, "signal: aborted") || d.Stderr != "assertion failed: x > 0 | SIGABRT: abort" {
		t.Errorf("%v", err)
	}
	if want := "the worker process died: signal: aborted (at \"warm up\"); its last words: assertion failed: x > 0 | SIGABRT: abort"; !strings.Contains(strings.Replace(err.Error(), " (core dumped)", "", 1), want) {
		t.Errorf("%v, want %s", err, want)
	}
}
