package cpu

import (
	"fmt"

	"github.com/tech-renaissance/trbench/workloads"
)

type pools struct{}

func (p *pools) close() {}

func compileKernel(b *workloads.Bound, mem *memory, st *stream) (func(), error) {
	return nil, fmt.Errorf("operator %s has no kernel", b.Op)
}

func scratchBytes(b *workloads.Bound) int64 { return 0 }
