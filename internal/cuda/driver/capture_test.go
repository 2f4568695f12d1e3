package driver_test

import (
	"testing"

	"github.com/tech-renaissance/trbench/internal/cuda/driver"
	"github.com/tech-renaissance/trbench/internal/cuda/fake"
)

// captureRule is one rule of stream capture: a way that is legal and one that
// is not, with the codes of the first failing call and of the capture's end.
type captureRule struct {
	name string
	// legal and illegal run inside a capture begun on s in mode; they return
	// the error of the call that the rule is about. The capture is ended by
	// the test.
	mode    driver.CaptureMode
	flags   driver.StreamFlags // of s
	legal   func(h *host, s driver.Stream) error
	illegal func(h *host, s driver.Stream) error
	code    driver.Result // of the illegal call
	end     driver.Result // of the end after it
}

// fork brings a new stream into the capture of s.
func fork(h *host, s driver.Stream) (driver.Stream, error) {
	side, e := h.stream(driver.StreamNonBlocking), h.event()
	if err := h.EventRecord(e, s); err != nil {
		return 0, err
	}
	return side, h.StreamWaitEvent(side, e, 0)
}

func join(h *host, s, side driver.Stream) error {
	e := h.event()
	if err := h.EventRecord(e, side); err != nil {
		return err
	}
	return h.StreamWaitEvent(s, e, 0)
}

var captureRules = []captureRule{
	{
		name: "900 a query of the stream", mode: driver.CaptureThreadLocal,
		legal: func(h *host, s driver.Stream) error { _, err := h.StreamIsCapturing(s); return err },
		illegal: func(h *host, s driver.Stream) error {
			_, err := h.StreamQuery(s)
			return err
		},
		code: driver.StreamCaptureUnsupported, end: driver.StreamCaptureInvalidated,
	},
	{
		name: "900 a wait for the stream", mode: driver.CaptureThreadLocal,
		legal:   func(h *host, s driver.Stream) error { return nil },
		illegal: func(h *host, s driver.Stream) error { return h.StreamSynchronize(s) },
		code:    driver.StreamCaptureUnsupported, end: driver.StreamCaptureInvalidated,
	},
	{
		name: "900 an allocation on the capturing thread", mode: driver.CaptureThreadLocal,
		legal: func(h *host, s driver.Stream) error {
			// Another thread may, under thread-local capture.
			return h.elsewhere(func() error {
				p, err := h.MemAlloc(256)
				if err == nil {
					h.t.Cleanup(func() { h.MemFree(p) })
				}
				return err
			})
		},
		illegal: func(h *host, s driver.Stream) error {
			p, err := h.MemAlloc(256)
			if err == nil {
				h.t.Cleanup(func() { h.MemFree(p) })
			}
			return err
		},
		code: driver.StreamCaptureUnsupported, end: driver.StreamCaptureInvalidated,
	},
	{
		name: "900 a thread polls an event under a global capture", mode: driver.CaptureGlobal,
		legal: func(h *host, s driver.Stream) error {
			return h.elsewhere(func() error {
				old, err := h.ThreadExchangeStreamCaptureMode(driver.CaptureRelaxed)
				if err != nil {
					return err
				}
				defer h.ThreadExchangeStreamCaptureMode(old)
				_, err = h.EventQuery(h.event())
				return err
			})
		},
		illegal: func(h *host, s driver.Stream) error {
			return h.elsewhere(func() error { _, err := h.EventQuery(h.event()); return err })
		},
		code: driver.StreamCaptureUnsupported, end: driver.StreamCaptureInvalidated,
	},
	{
		name: "901 work after the capture was invalidated", mode: driver.CaptureThreadLocal,
		legal: func(h *host, s driver.Stream) error { l := h.kernel(s, 0, 1); return h.LaunchError(l, h.Submit(l)) },
		illegal: func(h *host, s driver.Stream) error {
			h.StreamQuery(s)
			l := h.kernel(s, 0, 1)
			return h.LaunchError(l, h.Submit(l))
		},
		code: driver.StreamCaptureInvalidated, end: driver.StreamCaptureInvalidated,
	},
	{
		name: "902 two captures meet", mode: driver.CaptureThreadLocal,
		legal: func(h *host, s driver.Stream) error {
			side, err := fork(h, s)
			if err != nil {
				return err
			}
			return join(h, s, side)
		},
		illegal: func(h *host, s driver.Stream) error {
			other, e := h.stream(driver.StreamNonBlocking), h.event()
			h.ok(h.StreamBeginCapture(other, driver.CaptureThreadLocal))
			h.ok(h.EventRecord(e, other))
			err := h.StreamWaitEvent(s, e, 0)
			if g, err := h.StreamEndCapture(other); err == nil {
				h.GraphDestroy(g)
			} else {
				h.t.Logf("end of the other capture: %v", err)
			}
			return err
		},
		code: driver.StreamCaptureMerge, end: driver.StreamCaptureInvalidated,
	},
	{
		name: "903 the end on a stream that was brought in", mode: driver.CaptureThreadLocal,
		legal: func(h *host, s driver.Stream) error { return nil },
		illegal: func(h *host, s driver.Stream) error {
			side, err := fork(h, s)
			h.ok(err)
			_, err = h.StreamEndCapture(side)
			return err
		},
		code: driver.StreamCaptureUnmatched, end: driver.StreamCaptureInvalidated,
	},
	{
		name: "904 a fork without its join", mode: driver.CaptureThreadLocal,
		legal: func(h *host, s driver.Stream) error {
			side, err := fork(h, s)
			h.ok(err)
			h.submit(h.kernel(side, 0, 1))
			return join(h, s, side)
		},
		illegal: func(h *host, s driver.Stream) error {
			side, err := fork(h, s)
			h.ok(err)
			h.submit(h.kernel(side, 0, 1))
			return nil
		},
		code: driver.Success, end: driver.StreamCaptureUnjoined,
	},
	{
		name: "905 a wait for work outside", mode: driver.CaptureThreadLocal,
		legal: func(h *host, s driver.Stream) error {
			e := h.event()
			h.ok(h.EventRecord(e, s))
			return h.StreamWaitEvent(s, e, 0)
		},
		illegal: func(h *host, s driver.Stream) error {
			other, e := h.stream(driver.StreamNonBlocking), h.event()
			h.ok(h.EventRecord(e, other))
			return h.StreamWaitEvent(s, e, 0)
		},
		code: driver.StreamCaptureIsolation, end: driver.StreamCaptureInvalidated,
	},
	{
		name: "906 the legacy stream beside a blocking one", mode: driver.CaptureRelaxed, flags: driver.StreamDefault,
		legal:   func(h *host, s driver.Stream) error { return nil },
		illegal: func(h *host, s driver.Stream) error { return h.MemsetD8Async(h.word, 0, 4, 0) },
		code:    driver.StreamCaptureImplicit, end: driver.StreamCaptureInvalidated,
	},
	{
		name: "906 not beside a non-blocking one", mode: driver.CaptureRelaxed, flags: driver.StreamNonBlocking,
		legal:   func(h *host, s driver.Stream) error { return h.MemsetD8Async(h.word, 0, 4, 0) },
		illegal: func(h *host, s driver.Stream) error { return nil },
	},
	{
		name: "907 the host asks for a captured event", mode: driver.CaptureRelaxed,
		legal: func(h *host, s driver.Stream) error { _, err := h.EventQuery(h.event()); return err },
		illegal: func(h *host, s driver.Stream) error {
			e := h.event()
			h.ok(h.EventRecord(e, s))
			_, err := h.EventQuery(e)
			return err
		},
		code: driver.CapturedEvent, end: driver.StreamCaptureInvalidated,
	},
	{
		name: "908 the end on another thread", mode: driver.CaptureThreadLocal,
		legal: func(h *host, s driver.Stream) error { return nil },
		illegal: func(h *host, s driver.Stream) error {
			return h.elsewhere(func() error { _, err := h.StreamEndCapture(s); return err })
		},
		code: driver.StreamCaptureWrongThread, end: driver.IllegalState,
	},
}

// TestCaptureRules runs each rule's two ways. With TRBENCH_TEST_GPU=1 it asks the
// machine's driver instead of the fake one and logs each code. The codes in the
// table are what driver 580 (CUDA 13.0) answered on an H200.
func TestCaptureRules(t *testing.T) {
	for _, r := range captureRules {
		if r.flags == 0 && r.name[:3] != "906" {
			r.flags = driver.StreamNonBlocking
		}
		run := func(t *testing.T, way func(*host, driver.Stream) error, want, wantEnd driver.Result) {
			h := newHost(t, fake.H200(1))
			s := h.stream(r.flags)
			h.ok(h.StreamBeginCapture(s, r.mode))
			h.submit(h.kernel(s, 0, 1))
			got := code(way(h, s))
			g, err := h.StreamEndCapture(s)
			if err == nil {
				h.ok(h.GraphDestroy(g))
			}
			t.Logf("%-52s call %3d, end %3d", r.name, got, code(err))
			if got != want || code(err) != wantEnd {
				t.Errorf("call gives %v, want %v; the end gives %v, want %v", got, want, code(err), wantEnd)
			}
			// No stream is left capturing, and work runs again.
			if st, err := h.StreamIsCapturing(s); err != nil || st != driver.CaptureNone {
				t.Errorf("after the end: status %d, %v", st, err)
			}
			h.ok(h.CtxSynchronize())
			h.set(0)
			h.submit(h.kernel(s, 0, 5))
			h.ok(h.StreamSynchronize(s))
			if v := h.value(); v != 5 {
				t.Errorf("work after the capture left %d", v)
			}
		}
		t.Run(r.name+"/legal", func(t *testing.T) { run(t, r.legal, 0, 0) })
		t.Run(r.name+"/illegal", func(t *testing.T) { run(t, r.illegal, r.code, r.end) })
	}
}

// TestCaptureEdges holds answers beside the rules: begin twice, end without
// begin, begin on the legacy stream, an event after its capture.
func TestCaptureEdges(t *testing.T) {
	h := newHost(t, fake.H200(1))
	s := h.stream(driver.StreamNonBlocking)
	want := func(what string, err error, want driver.Result) {
		t.Helper()
		t.Logf("%-44s %d", what, code(err))
		if code(err) != want {
			t.Errorf("%s: %v, want %v", what, err, want)
		}
	}
	_, err := h.StreamEndCapture(s)
	want("end without begin", err, driver.IllegalState)
	want("begin on the legacy stream", h.StreamBeginCapture(0, driver.CaptureThreadLocal), driver.StreamCaptureUnsupported)
	h.ok(h.StreamBeginCapture(s, driver.CaptureThreadLocal))
	want("begin twice", h.StreamBeginCapture(s, driver.CaptureThreadLocal), driver.IllegalState)
	never := h.event()
	h.submit(h.kernel(s, 0, 1))
	e := h.event()
	h.ok(h.EventRecord(e, s))
	g, err := h.StreamEndCapture(s)
	h.ok(err)
	_, err = h.EventQuery(e)
	want("query of an event after its capture", err, driver.InvalidValue)
	h.ok(h.EventRecord(e, s))
	h.ok(h.EventSynchronize(e))
	h.ok(h.GraphDestroy(g))

	h.ok(h.StreamBeginCapture(s, driver.CaptureThreadLocal))
	want("wait for an event never recorded", h.StreamWaitEvent(s, never, 0), driver.Success)
	g, err = h.StreamEndCapture(s)
	want("end after a wait for an event never recorded", err, driver.Success)
	if err == nil {
		h.ok(h.GraphDestroy(g))
	}
	h.ok(h.StreamBeginCapture(s, driver.CaptureThreadLocal))
	err = h.elsewhere(h.CtxSynchronize)
	want("another thread waits for the context", err, driver.StreamCaptureUnsupported)
	if g, err := h.StreamEndCapture(s); err == nil {
		h.GraphDestroy(g)
	}
}
