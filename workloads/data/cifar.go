package data

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
)

// The layout of CIFAR-10's binary version: records of one label byte and
// three planes (red, green, blue) of 32 rows of 32 bytes.
const (
	cifarSide    = 32
	cifarPlane   = cifarSide * cifarSide
	cifarRecord  = 1 + 3*cifarPlane
	cifarClasses = 10
)

var cifarTrainFiles = [...]string{
	"data_batch_1.bin", "data_batch_2.bin", "data_batch_3.bin", "data_batch_4.bin", "data_batch_5.bin",
}

const cifarTestFile = "test_batch.bin"

// FileError is a data file that cannot be used.
type FileError struct {
	Dir, File string // File is empty if the folder is at fault
	Problem   string
	Err       error // may be nil
}

func (e *FileError) Error() string {
	if e.File == "" {
		return fmt.Sprintf("--data %s %s", e.Dir, e.Problem)
	}
	return fmt.Sprintf("--data %s: %s %s", e.Dir, e.File, e.Problem)
}

func (e *FileError) Unwrap() error { return e.Err }

// checkCIFAR10 looks at names and sizes.
func checkCIFAR10(dir string) error {
	info, err := os.Stat(dir)
	if err != nil || !info.IsDir() {
		problem := "is not a folder"
		if errors.Is(err, fs.ErrNotExist) {
			problem = "does not exist"
		}
		return &FileError{Dir: dir, Problem: problem, Err: err}
	}
	for _, name := range append(cifarTrainFiles[:], cifarTestFile) {
		info, err := os.Stat(filepath.Join(dir, name))
		switch {
		case errors.Is(err, fs.ErrNotExist):
			return &FileError{Dir: dir, File: name, Problem: "is missing; CIFAR-10's binary version has six files", Err: err}
		case err != nil:
			return unreadable(dir, name, err)
		case info.IsDir():
			return &FileError{Dir: dir, File: name, Problem: "is a folder, not a file"}
		case !info.Mode().IsRegular():
			// Reading a pipe might wait for ever.
			return &FileError{Dir: dir, File: name, Problem: "is no regular file"}
		}
		if f, err := os.Open(filepath.Join(dir, name)); err != nil {
			return unreadable(dir, name, err)
		} else if err := f.Close(); err != nil {
			return unreadable(dir, name, err)
		}
		if err := checkSize(dir, name, info.Size()); err != nil {
			return err
		}
	}
	return nil
}

// unreadable drops the path from the cause, as the sentence has it already.
func unreadable(dir, name string, err error) *FileError {
	cause := err
	var p *fs.PathError
	if errors.As(err, &p) {
		cause = p.Err
	}
	return &FileError{Dir: dir, File: name, Problem: "cannot be read: " + cause.Error(), Err: err}
}

func checkSize(dir, name string, size int64) error {
	if size > 0 && size%cifarRecord == 0 {
		return nil
	}
	return &FileError{Dir: dir, File: name,
		Problem: fmt.Sprintf("has %d bytes, which is not a whole number of %d-byte records", size, cifarRecord)}
}

type cifar struct {
	seed   uint64
	splits [2][]byte // whole records
}

// OpenCIFAR10 reads CIFAR-10's binary files from a folder. The error is a
// [*FileError].
func OpenCIFAR10(dir string, seed uint64) (Source, error) {
	if err := checkCIFAR10(dir); err != nil {
		return nil, err
	}
	c := &cifar{seed: seed}
	for _, name := range cifarTrainFiles {
		if err := c.load(Train, dir, name); err != nil {
			return nil, err
		}
	}
	if err := c.load(Val, dir, cifarTestFile); err != nil {
		return nil, err
	}
	return c, nil
}

func (c *cifar) load(split Split, dir, name string) error {
	b, err := os.ReadFile(filepath.Join(dir, name))
	if err != nil {
		return unreadable(dir, name, err)
	}
	if err := checkSize(dir, name, int64(len(b))); err != nil {
		return err
	}
	for i := 0; i < len(b); i += cifarRecord {
		if b[i] >= cifarClasses {
			return &FileError{Dir: dir, File: name,
				Problem: fmt.Sprintf("has label %d in record %d; labels are 0 to %d", b[i], i/cifarRecord, cifarClasses-1)}
		}
	}
	c.splits[split] = append(c.splits[split], b...)
	return nil
}

func (c *cifar) Name() string { return CIFAR10 }
func (c *cifar) Classes() int { return cifarClasses }

// StepsPerEpoch leaves out a partial batch at the end.
func (c *cifar) StepsPerEpoch(split Split, ranks, batch int) int {
	return c.count(split) / ranks / batch
}

func (c *cifar) count(split Split) int { return len(c.splits[split]) / cifarRecord }

// Fill gives rank r the r-th of equal slices of the epoch's order: training
// images in a fresh order each epoch, validation images as they lie. A set
// smaller than one image a rank is shared.
func (c *cifar) Fill(split Split, rank, ranks, index, batch, resolution int, images, labels []byte) {
	total := c.count(split)
	slice := max(total/ranks, 1)
	size := resolution * resolution * 3
	for i := range batch {
		n := index*batch + i
		at := (rank*slice + n%slice) % total
		if split == Train {
			at = shuffle{mix(c.seed ^ mix(uint64(n/slice)+golden))}.at(at, total)
		}
		record := c.splits[split][at*cifarRecord:][:cifarRecord]
		putLabel(labels, i, int(record[0]))
		resizeNearest(images[i*size:(i+1)*size], record[1:], resolution)
	}
}

// resizeNearest turns planes of side 32 into interleaved pixels of any side.
func resizeNearest(dst, planes []byte, side int) {
	for y := range side {
		row := y * cifarSide / side * cifarSide
		for x := range side {
			p := row + x*cifarSide/side
			d := dst[(y*side+x)*3:][:3]
			d[0], d[1], d[2] = planes[p], planes[cifarPlane+p], planes[2*cifarPlane+p]
		}
	}
}

// shuffle is a permutation of 0..n-1 that needs no table: four Feistel rounds
// over the next even power of two, walked until the result is below n. A
// table a epoch would make Fill depend on what was asked before.
type shuffle struct{ key uint64 }

func (s shuffle) at(i, n int) int {
	half := uint(1)
	for 1<<(2*half) < n {
		half++
	}
	mask := uint64(1)<<half - 1
	x := uint64(i)
	for {
		l, r := x>>half, x&mask
		for round := range uint64(4) {
			l, r = r, l^(mix(s.key+golden*(round+1)^r)&mask)
		}
		x = l<<half | r
		if x < uint64(n) {
			return int(x)
		}
	}
}
