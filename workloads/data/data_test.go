package data

import (
	"bytes"
	"encoding/binary"
	"errors"
	"os"
	"path/filepath"
	"strings"
	"testing"
)

type batch struct{ images, labels []byte }

func fill(s Source, split Split, rank, ranks, index, n, resolution int) batch {
	b := batch{make([]byte, n*resolution*resolution*3), make([]byte, 4*n)}
	s.Fill(split, rank, ranks, index, n, resolution, b.images, b.labels)
	return b
}

func (b batch) label(i int) int { return int(binary.LittleEndian.Uint32(b.labels[4*i:])) }

// writeCIFAR writes six files with the given records in each; record n of a
// split has label n%10, red n%256, green n/256, blue its row.
func writeCIFAR(t *testing.T, records int) string {
	t.Helper()
	dir := t.TempDir()
	names := append(cifarTrainFiles[:], cifarTestFile)
	for f, name := range names {
		var b []byte
		for i := range records {
			n := i
			if name != cifarTestFile {
				n += f * records
			}
			b = append(b, byte(n%10))
			for p := range 3 * cifarPlane {
				b = append(b, [3]byte{byte(n), byte(n >> 8), byte(p % cifarPlane / cifarSide)}[p/cifarPlane])
			}
		}
		if err := os.WriteFile(filepath.Join(dir, name), b, 0o644); err != nil {
			t.Fatal(err)
		}
	}
	return dir
}

func sources(t *testing.T, seed uint64) map[string]Source {
	t.Helper()
	cifar, err := Open(Parse(writeCIFAR(t, 20), seed), 10)
	if err != nil {
		t.Fatal(err)
	}
	return map[string]Source{Random: NewRandom(seed, 10), Learnable: NewLearnable(seed, 10), CIFAR10: cifar}
}

func TestPureFunction(t *testing.T) {
	first, again, other := sources(t, 1), sources(t, 1), sources(t, 2)
	for name, s := range first {
		t.Run(name, func(t *testing.T) {
			if s.Name() != name || s.Classes() != 10 {
				t.Errorf("name %q, classes %d", s.Name(), s.Classes())
			}
			want := fill(s, Train, 1, 2, 3, 4, 16)
			fill(again[name], Train, 0, 2, 7, 4, 16)
			got := fill(again[name], Train, 1, 2, 3, 4, 16)
			if !bytes.Equal(got.images, want.images) || !bytes.Equal(got.labels, want.labels) {
				t.Error("the same batch differs when another was asked for before")
			}
			for what, b := range map[string]batch{
				"seed":  fill(other[name], Train, 1, 2, 3, 4, 16),
				"split": fill(s, Val, 1, 2, 3, 4, 16),
				"rank":  fill(s, Train, 0, 2, 3, 4, 16),
				"index": fill(s, Train, 1, 2, 4, 4, 16),
			} {
				if bytes.Equal(b.images, want.images) {
					t.Errorf("another %s gives the same images", what)
				}
			}
			if n := testing.AllocsPerRun(5, func() { s.Fill(Train, 0, 1, 0, 4, 16, want.images, want.labels) }); n != 0 {
				t.Errorf("Fill allocates %v times", n)
			}
		})
	}
}

// What R ranks see at batch b is what one rank sees at R x b: the tests that
// compare rank counts stand on it.
func TestRanksSplitTheGlobalBatch(t *testing.T) {
	for _, s := range []Source{NewRandom(1, 10), NewLearnable(1, 10)} {
		whole := fill(s, Train, 0, 1, 5, 6, 8)
		var parts batch
		for r := range 3 {
			p := fill(s, Train, r, 3, 5, 2, 8)
			parts.images, parts.labels = append(parts.images, p.images...), append(parts.labels, p.labels...)
		}
		if !bytes.Equal(whole.images, parts.images) || !bytes.Equal(whole.labels, parts.labels) {
			t.Errorf("%s: three ranks' batches are not one rank's", s.Name())
		}
	}
}

func TestLabelsCoverTheClasses(t *testing.T) {
	for _, s := range []Source{NewRandom(1, 10), NewLearnable(1, 10)} {
		var seen [10]int
		b := fill(s, Train, 0, 1, 0, 1000, 1)
		for i := range 1000 {
			seen[b.label(i)]++
		}
		for c, n := range seen {
			if n < 50 || n > 150 {
				t.Errorf("%s: class %d has %d of 1000 images", s.Name(), c, n)
			}
		}
	}
}

// The nearest class mean, learnt on one batch, tells the classes of another
// apart: linear enough for a small network, at any resolution.
func TestLearnableIsLearnable(t *testing.T) {
	for _, resolution := range []int{8, 32, 40} {
		s := NewLearnable(7, 10)
		size := resolution * resolution * 3
		train, val := fill(s, Train, 0, 1, 0, 200, resolution), fill(s, Val, 0, 1, 0, 200, resolution)
		means, counts := make([][]float64, 10), make([]float64, 10)
		for c := range means {
			means[c] = make([]float64, size)
		}
		for i := range 200 {
			c := train.label(i)
			counts[c]++
			for p, v := range train.images[i*size:][:size] {
				means[c][p] += float64(v)
			}
		}
		hits := 0
		for i := range 200 {
			best, bestDistance := -1, 0.0
			for c := range means {
				d := 0.0
				for p, v := range val.images[i*size:][:size] {
					d += sq(float64(v) - means[c][p]/counts[c])
				}
				if best < 0 || d < bestDistance {
					best, bestDistance = c, d
				}
			}
			if best == val.label(i) {
				hits++
			}
		}
		if hits < 195 {
			t.Errorf("resolution %d: %d of 200 right", resolution, hits)
		}
	}
}

func sq(x float64) float64 { return x * x }

func TestCIFARReader(t *testing.T) {
	s, err := OpenCIFAR10(writeCIFAR(t, 60), 3)
	if err != nil {
		t.Fatal(err)
	}
	if got := s.StepsPerEpoch(Train, 2, 7); got != 300/2/7 {
		t.Errorf("steps per epoch %d", got)
	}
	// An epoch of two ranks visits each image once.
	seen := map[int]int{}
	var order [2][]int
	for epoch := range 2 {
		for rank := range 2 {
			for step := range 30 {
				b := fill(s, Train, rank, 2, epoch*30+step, 5, 32)
				for i := range 5 {
					px := b.images[i*3*cifarPlane:]
					n := int(px[0]) + int(px[1])<<8
					if b.label(i) != n%10 {
						t.Fatalf("image %d has label %d", n, b.label(i))
					}
					for y := range 32 {
						if got := px[y*32*3+2]; int(got) != y {
							t.Fatalf("row %d is row %d of the file", y, got)
						}
					}
					seen[n]++
					order[epoch] = append(order[epoch], n)
				}
			}
		}
	}
	if len(seen) != 300 {
		t.Errorf("%d of 300 images seen", len(seen))
	}
	for n, times := range seen {
		if times != 2 {
			t.Errorf("image %d seen %d times in two epochs", n, times)
		}
	}
	same := 0
	for i := range order[0] {
		if order[0][i] == order[1][i] {
			same++
		}
	}
	if same > 20 {
		t.Errorf("%d of 300 images at the same place in both epochs", same)
	}
	// Validation comes in the file's order.
	for i, b := 0, fill(s, Val, 1, 2, 0, 30, 32); i < 30; i++ {
		if n := int(b.images[i*3*cifarPlane]); n != 30+i {
			t.Fatalf("validation image %d of rank 1 is %d", i, n)
		}
	}
}

func TestCIFARResize(t *testing.T) {
	s, err := OpenCIFAR10(writeCIFAR(t, 4), 3)
	if err != nil {
		t.Fatal(err)
	}
	for _, side := range []int{8, 32, 96} {
		b := fill(s, Val, 0, 1, 0, 1, side)
		for y := range side {
			if got, want := int(b.images[(y*side+side-1)*3+2]), y*32/side; got != want {
				t.Errorf("side %d: row %d is row %d of the file, want %d", side, y, got, want)
			}
		}
	}
}

func TestShuffleIsAPermutation(t *testing.T) {
	for _, n := range []int{1, 2, 3, 5, 64, 1000} {
		seen := make([]bool, n)
		for i := range n {
			at := shuffle{42}.at(i, n)
			if at < 0 || at >= n || seen[at] {
				t.Fatalf("n %d: %d goes to %d, which is outside or taken", n, i, at)
			}
			seen[at] = true
		}
	}
}

func TestBadFolders(t *testing.T) {
	missing, short, label := writeCIFAR(t, 1), writeCIFAR(t, 1), writeCIFAR(t, 1)
	if err := errors.Join(
		os.Remove(filepath.Join(missing, "data_batch_3.bin")),
		os.WriteFile(filepath.Join(short, "test_batch.bin"), make([]byte, 3000), 0o644),
		os.WriteFile(filepath.Join(label, "data_batch_5.bin"), bytes.Repeat([]byte{10}, cifarRecord), 0o644),
	); err != nil {
		t.Fatal(err)
	}
	for _, test := range []struct {
		dir, want string
		late      bool // only reading finds it
	}{
		{filepath.Join(missing, "no"), "no does not exist", false},
		{filepath.Join(missing, "test_batch.bin"), "is not a folder", false},
		{missing, "data_batch_3.bin is missing", false},
		{short, "test_batch.bin has 3000 bytes", false},
		{label, "data_batch_5.bin has label 10 in record 0", true},
	} {
		t.Run(test.want, func(t *testing.T) {
			o := Parse(test.dir, 1)
			if err := Check(o); (err == nil) != test.late {
				t.Errorf("check: %v", err)
			}
			_, err := Open(o, 10)
			var fe *FileError
			if !errors.As(err, &fe) || !strings.HasPrefix(err.Error(), "--data "+test.dir) || !strings.Contains(err.Error(), test.want) {
				t.Errorf("got %v, want --data, the folder and %q", err, test.want)
			}
		})
	}
}

func BenchmarkFill(b *testing.B) {
	images, labels := make([]byte, 4*32*32*3), make([]byte, 16)
	for _, s := range []Source{NewRandom(1, 10), NewLearnable(1, 10)} {
		b.Run(s.Name(), func(b *testing.B) {
			b.SetBytes(int64(len(images)))
			for i := range b.N {
				s.Fill(Train, 0, 1, i, 4, 32, images, labels)
			}
		})
	}
}
