package device

import (
	"bytes"
	"errors"
	"fmt"
	"runtime"
	"runtime/debug"
	"strconv"
	"sync"
	"sync/atomic"
)

// ErrClosed refuses what comes after a group's end.
var ErrClosed = errors.New("the group is closed")

// Thread is a rank's one locked OS thread: a goroutine that runs closures in
// order. Its methods may be called on any goroutine.
type Thread struct {
	setup   func() error
	jobs    chan *Job
	stopped chan struct{}
	stop    sync.Once
	running sync.WaitGroup
	id      atomic.Int64 // the goroutine's
}

// NewThread starts the thread. setup, if not nil, runs on it first, and again
// should a closure end the goroutine so that another takes over; its failure
// is that of every closure.
func NewThread(setup func() error) *Thread {
	t := &Thread{setup: setup, jobs: make(chan *Job), stopped: make(chan struct{})}
	t.running.Add(1)
	go t.loop()
	return t
}

// Job is a closure that was handed to a thread.
type Job struct {
	f    func() error
	done chan error // buffered: the thread never waits for its caller
}

// Wait blocks until the closure returned, and returns its error; a panic is an
// error too. It may be called once.
func (j *Job) Wait() error { return <-j.done }

func (t *Thread) loop() {
	runtime.LockOSThread() // never unlocked: the OS thread ends with the goroutine
	t.id.Store(goid())
	var failed error
	if t.setup != nil {
		failed = t.setup()
	}
	for {
		select {
		case j := <-t.jobs:
			if failed != nil {
				j.done <- failed
				continue
			}
			t.call(j)
		case <-t.stopped:
			t.running.Done()
			return
		}
	}
}

// call runs one job and answers even if it panics or ends the goroutine, as a
// test's FailNow does; a new goroutine then takes over.
func (t *Thread) call(j *Job) {
	returned := false
	defer func() {
		if returned {
			return
		}
		if p := recover(); p != nil {
			j.done <- fmt.Errorf("on the rank's thread: %w", NewPanic(p))
			return
		}
		go t.loop()
		j.done <- errors.New("the function ended the rank's goroutine (runtime.Goexit)")
	}()
	err := j.f()
	returned = true
	j.done <- err
}

// Post hands f over and returns at once, unless the thread is busy. On the
// thread itself f runs before Post returns: a nested closure would otherwise
// wait for itself. After Stop the job's error is [ErrClosed].
func (t *Thread) Post(f func() error) *Job {
	j := &Job{f: f, done: make(chan error, 1)}
	select {
	case <-t.stopped:
		j.done <- ErrClosed
		return j
	default:
	}
	if t.Here() {
		j.done <- f()
		return j
	}
	select {
	case t.jobs <- j:
	case <-t.stopped:
		j.done <- ErrClosed
	}
	return j
}

// Do runs f on the thread and waits; on the thread it calls f.
func (t *Thread) Do(f func() error) error { return t.Post(f).Wait() }

// Each hands f to all threads at once, the i-th thread being rank i's, and waits
// for all. Errors are joined in rank order, each naming its rank once. It is
// not called on one of the threads.
func Each(threads []*Thread, f func(rank int) error) error {
	jobs := make([]*Job, len(threads))
	for i, t := range threads {
		jobs[i] = t.Post(func() error { return f(i) })
	}
	var errs []error
	for i, j := range jobs {
		err := j.Wait()
		if e, ok := err.(*OpError); err != nil && !(ok && e.Rank == i) {
			err = fmt.Errorf("rank %d: %w", i, err)
		}
		errs = append(errs, err)
	}
	return errors.Join(errs...)
}

// Here says whether the caller runs on the thread. It costs a microsecond.
func (t *Thread) Here() bool { return goid() == t.id.Load() }

// Stop ends the thread after the closure it runs, and waits for that. It is
// not called on the thread.
func (t *Thread) Stop() {
	t.stop.Do(func() { close(t.stopped) })
	t.running.Wait()
}

// goid is the calling goroutine's number, which only its stack trace tells
// portably.
func goid() int64 {
	var buf [32]byte
	s := bytes.TrimPrefix(buf[:runtime.Stack(buf[:], false)], []byte("goroutine "))
	digits, _, _ := bytes.Cut(s, []byte(" "))
	n, err := strconv.ParseInt(string(digits), 10, 64)
	if err != nil {
		panic("device: a stack trace begins with " + string(s))
	}
	return n
}

// PanicError is a recovered panic.
type PanicError struct {
	Value any
	Stack []byte
}

// NewPanic makes an error of what recover returned, with the stack of the
// caller.
func NewPanic(p any) error { return &PanicError{p, debug.Stack()} }

func (e *PanicError) Error() string { return fmt.Sprintf("panic: %v", e.Value) }

// Unwrap is the value, if it is an error.
func (e *PanicError) Unwrap() error {
	err, _ := e.Value.(error)
	return err
}
