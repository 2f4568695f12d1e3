package history

import (
	"bytes"
	"compress/gzip"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"math"
	"regexp"
	"strconv"
	"time"

	"github.com/tech-renaissance/trbench/results"
)

// Names of a night's format.
const (
	NightName  = "trbench.night"
	NightMajor = 1
	NightMinor = 0
)

// maxNightBytes is far above what any night takes, unpacked.
const maxNightBytes = 64 << 20

// Night is what is kept of a night for good.
type Night struct {
	Schema results.Schema `json:"schema"`
	// Sequence counts nights from 1; it orders them, whatever clocks said.
	Sequence int `json:"sequence"`
	// ID is drawn when a night begins, so that one which was killed while it
	// was stored is not stored twice.
	ID string `json:"id"`
	// Previous is the SHA-256 of the file of the night before, in hex; empty
	// for the first.
	Previous string    `json:"previous"`
	Began    time.Time `json:"began"`
	Ended    time.Time `json:"ended"`

	Program results.Program `json:"program"`
	// Verdict is the comparison's, after the confirmation; empty where there
	// was no baseline. Line says it in a sentence.
	Verdict string `json:"verdict"`
	Line    string `json:"line"`
	// LeftOut says in sentences what there was no time for.
	LeftOut  []string          `json:"left_out"`
	Warnings []results.Warning `json:"warnings"`
	// Base names the pins that head was compared with.
	Base    []string `json:"base"`
	Records []Kept   `json:"records"`
	Rows    []Row    `json:"rows"`
	// Sentinel is the guard's test of itself; null if it was left out.
	Sentinel *Sentinel `json:"sentinel"`
	// Changes are change points that this night found first: where their ids
	// come from.
	Changes []Known `json:"changes"`
}

// Kept is a record in the history's folder.
type Kept struct {
	Role   string `json:"role"` // head, confirming base, ...
	File   string `json:"file"` // in records/
	SHA256 string `json:"sha256"`
	Bytes  int64  `json:"bytes"` // as stored
}

// Row is what a night measured of a row.
type Row struct {
	Key       results.RowKey `json:"key"`
	Unit      string         `json:"unit"`
	Direction string         `json:"direction"`
	// Processes are head's process medians, in the row's unit.
	Processes []float64 `json:"processes"`
	// Verdict, Reason and Ratio, head over base, are the comparison's; without
	// one empty and null.
	Verdict string   `json:"verdict"`
	Reason  string   `json:"reason"`
	Ratio   *float64 `json:"ratio"`
}

// Value is the night's figure of the row: the median of its processes.
func (r Row) Value() float64 { return results.Median(r.Processes) }

// DamagedError says that files of a history are not as they were written.
type DamagedError struct {
	Dir string
	// Problems are sentences, each with its file.
	Problems []string
	// Remedy says what to do, in words.
	Remedy string
}

// Remedies of damage.
const (
	nightRemedy   = "put the file back as it was, or take it away and run trbench history reindex, which then lists the night as missing"
	foreignRemedy = "take what is no night's own file out of the folder"
	folderRemedy  = "put the folder back; without it, begin another history elsewhere, or take what is left of this one away"
	lineRemedy    = "put the file back as it was; or take that line and all behind it out of it, and run trbench history reindex"
	cutRemedy     = "put the file back as it was, or run trbench history reindex, which takes what is there for all there is"
	programRemedy = "put the file back as it was, or drop the pin, and pin again with the program that measured it"
	startRemedy   = "make the file executable again, where programs may be started, or drop the pin"
	recordRemedy  = "put the file back as it was"
)

func (e *DamagedError) Error() string {
	text := fmt.Sprintf("history %s: %s", e.Dir, e.Problems[0])
	if n := len(e.Problems) - 1; n > 0 {
		text += fmt.Sprintf(" (and %d more)", n)
	}
	return text
}

var nightFile = regexp.MustCompile(`^(\d{6,9})-(\d{8}T\d{6}Z)-([0-9a-f]{32})\.json\.gz$`)

// hashInName is how many hexadecimal digits of a hash are in a file's name.
const hashInName = 32

func (n *Night) fileName(sum string) string {
	return fmt.Sprintf("%06d-%s-%s.json.gz", n.Sequence, n.Began.UTC().Format("20060102T150405Z"), sum[:hashInName])
}

func hashOf(b []byte) string {
	sum := sha256.Sum256(b)
	return hex.EncodeToString(sum[:])
}

// pack is a night as stored; the same night gives the same bytes.
func (n *Night) pack() ([]byte, error) {
	if err := n.check(); err != nil {
		return nil, fmt.Errorf("store night %d: %w", n.Sequence, err)
	}
	b, err := json.Marshal(n)
	if err != nil {
		return nil, fmt.Errorf("store night %d: %w", n.Sequence, err)
	}
	return packed(b), nil
}

func packed(b []byte) []byte {
	var out bytes.Buffer
	z := gzip.NewWriter(&out)
	_, _ = z.Write(b) // a bytes.Buffer takes everything
	_ = z.Close()
	return out.Bytes()
}

// check refuses what no night says. It is asked before writing and after
// reading.
func (n *Night) check() error {
	if n.Schema.Name != NightName || n.Schema.Major != NightMajor {
		return fmt.Errorf("is of schema %q %d.%d, not %s %d", n.Schema.Name, n.Schema.Major, n.Schema.Minor, NightName, NightMajor)
	}
	if n.Sequence < 1 {
		return fmt.Errorf("has the number %d", n.Sequence)
	}
	seen := map[string]bool{}
	for _, r := range n.Rows {
		name := r.Key.String()
		switch {
		case seen[name]:
			return fmt.Errorf("has row %s twice", name)
		case len(r.Processes) == 0:
			return fmt.Errorf("has no figures of row %s", name)
		}
		seen[name] = true
		for _, v := range r.Processes {
			if !(v > 0 && v <= math.MaxFloat64) {
				return fmt.Errorf("has the value %v of row %s", v, name)
			}
		}
	}
	return nil
}

// unpack reads a night's bytes; the error continues "FILE ".
func unpack(b []byte) (*Night, error) {
	z, err := gzip.NewReader(bytes.NewReader(b))
	if err != nil {
		return nil, errors.New("is no packed night")
	}
	text, err := io.ReadAll(io.LimitReader(z, maxNightBytes+1))
	switch {
	case errors.Is(err, io.ErrUnexpectedEOF):
		return nil, errors.New("ends in the middle")
	case err != nil:
		return nil, fmt.Errorf("cannot be unpacked: %w", err)
	case len(text) > maxNightBytes:
		return nil, fmt.Errorf("is larger than %d bytes", maxNightBytes)
	}
	var n Night
	d := json.NewDecoder(bytes.NewReader(text))
	if err := d.Decode(&n); err != nil {
		return nil, fmt.Errorf("is no night: %w", err)
	}
	if d.More() {
		return nil, errors.New("has more after its end")
	}
	return &n, n.check()
}

// sequenceOf reads a file's name.
func sequenceOf(name string) (sequence int, sum string, ok bool) {
	m := nightFile.FindStringSubmatch(name)
	if m == nil {
		return 0, "", false
	}
	n, err := strconv.Atoi(m[1])
	return n, m[3], err == nil && n > 0
}
