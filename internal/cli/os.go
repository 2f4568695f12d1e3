package cli

import (
	"context"
	"os"
	"os/signal"
	"time"
)

// OS is the operating system as an Env. The first Ctrl-C ends the context;
// from then on the signal has its default effect again, so that a second one
// ends a program that does not react.
func OS() *Env {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt)
	context.AfterFunc(ctx, stop)
	dir, err := os.Getwd()
	if err != nil {
		dir = "." // file names then resolve where the system resolves them
	}
	return &Env{
		Context: ctx, Stdout: os.Stdout, Stderr: os.Stderr, Args: os.Args[1:], Getenv: os.Getenv,
		WorkDir: dir, Now: time.Now, Engine: NewEngine(),
	}
}
