package cli

import (
	"context"
	"os"
	"os/signal"
	"syscall"
	"time"

	"golang.org/x/sys/unix"
	"golang.org/x/term"
)

// OS is the operating system as an Env. The first Ctrl-C, or SIGTERM, ends the
// context; from then on the signal has its default effect again, so that a second one
// ends a program that does not react.
func OS() *Env {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	context.AfterFunc(ctx, stop)
	dir, err := os.Getwd()
	if err != nil {
		dir = "." // file names then resolve where the system resolves them
	}
	self, err := os.Executable()
	if err != nil {
		self = os.Args[0]
	}
	engine := NewEngine(os.Getenv, Libraries{
		Driver: os.Getenv("TRBENCH_DRIVER"), CuDNN: os.Getenv("TRBENCH_CUDNN"), CuBLAS: os.Getenv("TRBENCH_CUBLAS"),
		CUPTI: os.Getenv("TRBENCH_CUPTI"), Tuning: os.Getenv("TRBENCH_TUNING"),
	})
	return &Env{
		Context: ctx, Stdin: os.Stdin, Stdout: os.Stdout, StdoutLost: lost(os.Stdout), Stderr: os.Stderr, Args: os.Args[1:], Getenv: os.Getenv,
		Terminal: term.IsTerminal(int(os.Stderr.Fd())), Columns: columns,
		WorkDir: dir, Now: time.Now, Engine: engine,
		// Not the file of that name, which a new build may have replaced.
		Executable: "/proc/self/exe",
		Program:    self, Name: os.Args[0], Machine: engine.Machine, Readings: engine.Readings,
	}
}

// lost says whether a standard file was closed when the program started: Go
// then opens the null device in its place, for reading and writing. A shell or
// a program that discards output opens it for writing.
func lost(f *os.File) bool {
	is, err := f.Stat()
	null, nullErr := os.Stat(os.DevNull)
	if err != nil || nullErr != nil || !os.SameFile(is, null) {
		return err != nil
	}
	flags, err := unix.FcntlInt(f.Fd(), unix.F_GETFL, 0)
	return err == nil && flags&unix.O_ACCMODE == unix.O_RDWR
}

// columns is the width of the terminal on stderr, 0 if there is none.
func columns() int {
	n, _, err := term.GetSize(int(os.Stderr.Fd()))
	if err != nil {
		return 0
	}
	return n
}
