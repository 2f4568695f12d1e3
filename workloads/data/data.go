package data

import "fmt"

// Split is the part of a data set.
type Split uint8

const (
	Train Split = iota
	Val
)

func (s Split) String() string { return [...]string{"train", "val"}[s] }

// Source fills batches. It is immutable after [Open] and safe for concurrent
// use.
type Source interface {
	Name() string
	Classes() int
	// StepsPerEpoch is the number of full batches each of ranks sees before
	// the split begins again; 0 if it never does.
	StepsPerEpoch(split Split, ranks, batch int) int
	// Fill writes batch number index of rank (0..ranks-1): images is
	// [batch, resolution, resolution, 3] U8, labels is [batch] int32 little
	// endian, both exactly that long or longer. Ranks see disjoint images
	// where the set is finite. It does not allocate.
	Fill(split Split, rank, ranks, index, batch, resolution int, images, labels []byte)
}

// Kinds of data, the values of --data beside a folder.
const (
	Random    = "random"    // uniform noise: the default for timing
	Learnable = "learnable" // a pattern a class, plus noise
	CIFAR10   = "cifar10"   // the binary files of CIFAR-10 in Dir
)

// Options chooses a source. It is plain data, so that it can be handed to
// another process.
type Options struct {
	Kind string
	Dir  string // of CIFAR10
	Seed uint64
}

// Parse reads the value of --data: a kind, or else a folder with CIFAR-10's
// binary files.
func Parse(value string, seed uint64) Options {
	switch value {
	case "", Random:
		return Options{Kind: Random, Seed: seed}
	case Learnable:
		return Options{Kind: Learnable, Seed: seed}
	}
	return Options{Kind: CIFAR10, Dir: value, Seed: seed}
}

// Open makes the source; classes is the number a synthetic one draws from.
// Files are read now, whole.
func Open(o Options, classes int) (Source, error) {
	switch o.Kind {
	case "", Random:
		return NewRandom(o.Seed, classes), nil
	case Learnable:
		return NewLearnable(o.Seed, classes), nil
	case CIFAR10:
		return OpenCIFAR10(o.Dir, o.Seed)
	}
	return nil, fmt.Errorf("open data: unknown kind %q", o.Kind)
}

// Check looks for what [Open] would need, without reading it all.
func Check(o Options) error {
	if o.Kind != CIFAR10 {
		return nil
	}
	return checkCIFAR10(o.Dir)
}
