//go:build !gorgonia

package gorgonia

import (
	"errors"

	"github.com/tech-renaissance/trbench/internal/device/cuda"
)

// ErrNotBuilt says how to get the launcher.
var ErrNotBuilt = errors.New("this build has no launcher gorgonia; build one with CGO_ENABLED=1 go build -tags gorgonia ./cmd/trbench where cuda.h and libcuda are installed")

// New returns [ErrNotBuilt].
func New() (cuda.Submitter, error) { return nil, ErrNotBuilt }
