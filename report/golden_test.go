package report_test

import (
	"bytes"
	"flag"
	"fmt"
	"image"
	"image/png"
	"os"
	"path/filepath"
	"testing"
)

// updating is the -update flag, which the package's inner tests define.
func updating() bool {
	f := flag.Lookup("update")
	return f != nil && f.Value.String() == "true"
}

// How much a picture may differ from its golden: some processors fuse
// multiplications, which moves an edge by a fraction of a pixel.
const (
	channelTolerance = 0x18
	pixelTolerance   = 0.002
	maxGoldenBytes   = 60 << 10
)

// golden compares a picture with testdata/NAME.png, or writes that.
func golden(name string, got []byte) error {
	path := filepath.Join("testdata", name+".png")
	if len(got) > maxGoldenBytes {
		return fmt.Errorf("%s has %d bytes, more than %d", path, len(got), maxGoldenBytes)
	}
	if updating() {
		return os.WriteFile(path, got, 0o644)
	}
	want, err := os.ReadFile(path)
	if err != nil {
		return err
	}
	g, err := png.Decode(bytes.NewReader(got))
	if err != nil {
		return err
	}
	w, err := png.Decode(bytes.NewReader(want))
	if err != nil {
		return err
	}
	if err := compare(g, w); err != nil {
		return fmt.Errorf("%s: %w (look at both; -update writes it anew)", path, err)
	}
	return nil
}

// compare allows a small share of the pixels to differ visibly.
func compare(got, want image.Image) error {
	if got.Bounds() != want.Bounds() {
		return fmt.Errorf("is %v, want %v", got.Bounds(), want.Bounds())
	}
	b := got.Bounds()
	differ := 0
	for y := b.Min.Y; y < b.Max.Y; y++ {
		for x := b.Min.X; x < b.Max.X; x++ {
			r0, g0, b0, a0 := got.At(x, y).RGBA()
			r1, g1, b1, a1 := want.At(x, y).RGBA()
			if far(r0, r1) || far(g0, g1) || far(b0, b1) || far(a0, a1) {
				differ++
			}
		}
	}
	if share := float64(differ) / float64(b.Dx()*b.Dy()); share > pixelTolerance {
		return fmt.Errorf("%.2f %% of the pixels differ", 100*share)
	}
	return nil
}

func far(a, b uint32) bool {
	a, b = a>>8, b>>8
	return max(a, b)-min(a, b) > channelTolerance
}

func TestCompareSees(t *testing.T) {
	a := image.NewGray(image.Rect(0, 0, 100, 100))
	b := image.NewGray(image.Rect(0, 0, 100, 100))
	if err := compare(a, b); err != nil {
		t.Errorf("equal pictures: %v", err)
	}
	for i := range 30 {
		b.Pix[i] = 0x10
	}
	if err := compare(a, b); err != nil {
		t.Errorf("a difference nobody sees: %v", err)
	}
	for i := range 30 {
		b.Pix[i] = 0x80
	}
	if compare(a, b) == nil {
		t.Error("a line in another grey is not seen")
	}
	if compare(a, image.NewGray(image.Rect(0, 0, 100, 101))) == nil {
		t.Error("another size is not seen")
	}
}
