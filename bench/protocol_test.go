package bench

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"io"
	"reflect"
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

func TestTail(t *testing.T) {
	var w tail
	for range 1000 {
		_, _ = w.Write([]byte("some noise\n"))
	}
	_, _ = w.Write([]byte("the end\n\n"))
	if s := w.String(); !strings.HasSuffix(s, "some noise | the end") || len(s) > tailBytes {
		t.Errorf("%q", s)
	}
	_, _ = w.Write([]byte("panic: it fell over\n\ngoroutine 1 [running]:\n"))
	if s := w.String(); s != "panic: it fell over" {
		t.Errorf("%q", s)
	}
}
