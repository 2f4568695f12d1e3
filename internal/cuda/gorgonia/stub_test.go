//go:build !gorgonia

package gorgonia

import (
	"errors"
	"strings"
	"testing"
)

func TestNotBuilt(t *testing.T) {
	s, err := New()
	if s != nil || !errors.Is(err, ErrNotBuilt) || !strings.Contains(err.Error(), "-tags gorgonia") || strings.Contains(err.Error(), "\n") {
		t.Errorf("%v, %v", s, err)
	}
}
