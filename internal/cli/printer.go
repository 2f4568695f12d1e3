package cli

import (
	"fmt"
	"io"

	"github.com/tech-renaissance/trbench/report"
)

// printer keeps the first failure of a sequence of writes.
type printer struct {
	w   io.Writer
	err error
}

func (p *printer) linef(format string, args ...any) {
	if p.err == nil {
		_, p.err = fmt.Fprintf(p.w, format+"\n", args...)
	}
}

func (p *printer) grid(g report.Grid) {
	if p.err == nil {
		p.err = g.Write(p.w)
	}
}
