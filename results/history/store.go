package history

import (
	"bytes"
	"cmp"
	"crypto/rand"
	"encoding/hex"
	"errors"
	"fmt"
	"io/fs"
	"maps"
	"os"
	"path/filepath"
	"runtime"
	"slices"
	"strings"
	"sync"
	"syscall"
	"time"

	"golang.org/x/sys/unix"

	"github.com/tech-renaissance/trbench/results"
)

const (
	nightsDir   = "nights"
	recordsDir  = "records"
	programsDir = "programs"
	indexFile   = "index.sqlite"
	tempPrefix  = ".trbench-"
)

// Store is an open history. It is used from one goroutine. Who adds to it must
// be alone with it, which is the caller's to see to; any number may read.
type Store struct {
	dir   string
	index *index
	files []file // in the order of nights

	// Missing says in sentences which nights are gone: numbers without a file.
	Missing []string
	// Rebuilt says why the index was made anew; empty if it was not.
	Rebuilt string

	write func(f *os.File, b []byte) error // a test's full disk stands here
}

// file is a night's file that was found to be as it was written.
type file struct {
	name, sum string
	sequence  int
	previous  string
	night     *Night // nil if the index has it
}

// Open reads the history in dir. With create, a folder that is not there is
// made; without it is an error. Every night's file is checked against its name
// and against the one before, and so are pins and acknowledgements, line by
// line; what is not as it was written is a [*DamagedError]. The caller closes
// the store.
func Open(dir string, create bool) (*Store, error) {
	return open(dir, create, false)
}

// Reindex makes the index anew from the files, and takes what is there for all
// there is: nights that the old index had and that are gone are forgotten.
func Reindex(dir string) (*Store, error) {
	return open(dir, false, true)
}

func open(dir string, create, anew bool) (_ *Store, err error) {
	s := &Store{dir: dir, write: writeAll}
	if create {
		for _, d := range []string{nightsDir, recordsDir} {
			if err := os.MkdirAll(filepath.Join(dir, d), 0o777); err != nil {
				return nil, fmt.Errorf("make the history's folder: %w", err)
			}
		}
	}
	entries, err := os.ReadDir(filepath.Join(dir, nightsDir))
	path := filepath.Join(dir, indexFile)
	if _, there := os.Stat(path); errors.Is(err, fs.ErrNotExist) && there == nil {
		return nil, &DamagedError{dir, []string{nightsDir + "/ was there and is gone"}, folderRemedy}
	}
	if err != nil {
		return nil, fmt.Errorf("read the history's folder: %w", err)
	}
	var known map[string]indexed
	if anew {
		s.Rebuilt = "asked for"
	} else if s.index, known, err = openIndex(path); err != nil {
		s.Rebuilt = err.Error()
	}
	defer func() {
		if err != nil {
			err = errors.Join(err, s.index.close())
		}
	}()
	foreign, problems := s.read(entries, known)
	problems = s.chain(append(foreign, problems...), known)
	switch {
	case len(problems) > len(foreign):
		return nil, &DamagedError{dir, problems, nightRemedy}
	case len(problems) > 0:
		return nil, &DamagedError{dir, problems, foreignRemedy}
	}
	if s.Rebuilt == "" {
		if err := s.index.add(s.fresh()); err == nil {
			return s, s.checkJournals()
		} else {
			s.Rebuilt = err.Error()
		}
		// An index that takes no more, or that another reader replaced.
		_ = s.index.close()
		s.index = nil
		if err := s.unpackAll(); err != nil {
			return nil, err
		}
	}
	if s.index, err = makeIndex(path, s.fresh); err != nil {
		s.Rebuilt += "; it cannot be written, so it is kept in memory: " + err.Error()
		if s.index, err = makeIndex(inMemory, s.fresh); err != nil {
			return nil, err
		}
	}
	return s, s.checkJournals()
}

// checkJournals finds damage of pins and acknowledgements.
func (s *Store) checkJournals() error {
	for _, name := range []string{pinsFile, acksFile} {
		if _, err := s.journal(name); err != nil {
			return err
		}
	}
	return nil
}

// fresh are the nights that the index does not have.
func (s *Store) fresh() (nights []*Night, sums []string) {
	for _, f := range s.files {
		if f.night != nil {
			nights, sums = append(nights, f.night), append(sums, f.sum)
		}
	}
	return nights, sums
}

// unpackAll reads what the index was thought to have.
func (s *Store) unpackAll() error {
	for i := range s.files {
		f := &s.files[i]
		if f.night != nil {
			continue
		}
		b, err := os.ReadFile(filepath.Join(s.dir, nightsDir, f.name))
		if err != nil {
			return fmt.Errorf("read the history: %w", err)
		}
		if f.night, err = unpack(b); err != nil {
			return &DamagedError{s.dir, []string{nightsDir + "/" + f.name + " " + err.Error()}, nightRemedy}
		}
	}
	return nil
}

// Close lets go of the index.
func (s *Store) Close() error { return s.index.close() }

// Nights is how many there are.
func (s *Store) Nights() int { return len(s.files) }

// Next is the number of the next night.
func (s *Store) Next() int {
	if n := len(s.files); n > 0 {
		return s.files[n-1].sequence + 1
	}
	return 1
}

// read reads all files, several at a time, and says what is wrong with any, and
// what is none of a history. Hidden files are nobody's: what a night that was
// killed left half written, and what file systems and copying programs leave.
func (s *Store) read(entries []fs.DirEntry, known map[string]indexed) (foreign, problems []string) {
	var names []string
	for _, e := range entries {
		switch _, _, ok := sequenceOf(e.Name()); {
		case strings.HasPrefix(e.Name(), "."):
		case !ok || !e.Type().IsRegular():
			foreign = append(foreign, fmt.Sprintf("%s/%s is no night's file", nightsDir, e.Name()))
		default:
			names = append(names, e.Name())
		}
	}
	files, said := make([]file, len(names)), make([]string, len(names))
	var wait sync.WaitGroup
	workers := runtime.GOMAXPROCS(0)
	for w := range workers {
		wait.Go(func() {
			for i := w; i < len(names); i += workers {
				files[i], said[i] = s.readOne(names[i], known)
			}
		})
	}
	wait.Wait()
	for i, f := range files {
		if said[i] != "" {
			problems = append(problems, nightsDir+"/"+names[i]+" "+said[i])
		} else {
			s.files = append(s.files, f)
		}
	}
	slices.SortStableFunc(s.files, func(a, b file) int { return cmp.Compare(a.sequence, b.sequence) })
	return foreign, problems
}

func (s *Store) readOne(name string, known map[string]indexed) (f file, problem string) {
	sequence, sum, _ := sequenceOf(name)
	b, err := os.ReadFile(filepath.Join(s.dir, nightsDir, name))
	if err != nil {
		return f, "cannot be read: " + cause(err).Error()
	}
	f = file{name: name, sum: hashOf(b), sequence: sequence}
	if f.sum[:hashInName] != sum {
		if _, err := unpack(b); err != nil {
			return f, fmt.Sprintf("is not as it was written: it %v", err)
		}
		return f, "was edited: its bytes are not those that its name tells of"
	}
	if k, ok := known[name]; ok && k.sum == f.sum {
		f.previous = k.previous
		return f, ""
	}
	n, err := unpack(b)
	if err != nil {
		return f, err.Error()
	}
	f.previous, f.night = n.Previous, n
	if n.fileName(f.sum) != name {
		return f, fmt.Sprintf("was renamed: it holds night %d, which is called %s", n.Sequence, n.fileName(f.sum))
	}
	return f, ""
}

// chain checks that each night follows the one before, and adds what it finds to
// what is known to be wrong.
func (s *Store) chain(problems []string, known map[string]indexed) []string {
	bySum := map[string]file{}
	here := map[string]bool{}
	for i, f := range s.files {
		here[f.name] = true
		if other, twice := bySum[f.sum]; twice {
			problems = append(problems, fmt.Sprintf("%s/%s is a copy of %s", nightsDir, f.name, other.name))
			continue
		}
		bySum[f.sum] = f
		before, first := file{}, i == 0
		if !first {
			before = s.files[i-1]
		}
		switch {
		case !first && before.sequence == f.sequence:
			problems = append(problems, fmt.Sprintf("%s has two files of night %d: %s and %s", nightsDir, f.sequence, before.name, f.name))
		case first && f.sequence == 1 && f.previous != "":
			problems = append(problems, fmt.Sprintf("%s/%s is the first night and names one before it", nightsDir, f.name))
		case first && f.sequence > 1:
			s.Missing = append(s.Missing, gap(1, f.sequence-1))
		case !first && f.sequence > before.sequence+1:
			s.Missing = append(s.Missing, gap(before.sequence+1, f.sequence-1))
		case !first && f.previous != before.sum:
			problems = append(problems, fmt.Sprintf("%s/%s does not follow %s: one of them was put in another's place", nightsDir, f.name, before.name))
		}
	}
	for _, name := range slices.Sorted(maps.Keys(known)) {
		if !here[name] && !slices.ContainsFunc(problems, func(p string) bool { return strings.Contains(p, name) }) {
			problems = append(problems, fmt.Sprintf("%s/%s was there and is gone", nightsDir, name))
		}
	}
	return problems
}

func gap(from, to int) string {
	if from == to {
		return fmt.Sprintf("night %d is missing", from)
	}
	return fmt.Sprintf("nights %d to %d are missing", from, to)
}

func cause(err error) error {
	var p *fs.PathError
	if errors.As(err, &p) {
		return p.Err
	}
	var l *os.LinkError
	if errors.As(err, &l) {
		return l.Err
	}
	return err
}

// FullError says that something could not be written, as on a full disk.
// Nothing that was there is changed by it.
type FullError struct {
	Path string
	Err  error
}

func (e *FullError) Error() string {
	return fmt.Sprintf("cannot write %s: %v", e.Path, cause(e.Err))
}

func (e *FullError) Unwrap() error { return e.Err }

// IndexError says that the files are written and the index is not. The next one
// who opens the history does that.
type IndexError struct{ Err error }

func (e *IndexError) Error() string { return fmt.Sprintf("update the history's index: %v", e.Err) }

func (e *IndexError) Unwrap() error { return e.Err }

// Has says whether the history has a night of that id.
func (s *Store) Has(id string) (bool, error) {
	_, found, err := s.index.find(id)
	return found, err
}

// Append stores a night as the next one: it gets its number and its
// predecessor, and then its file, whole or not at all. It returns the file's
// name. A night whose id the history has is not stored again. The error is a
// [*FullError], or an [*IndexError] where the night is stored all the same.
func (s *Store) Append(n *Night) (string, error) {
	if at, found, err := s.index.find(n.ID); err != nil {
		return "", &IndexError{err}
	} else if found {
		n.Sequence = at
		i := slices.IndexFunc(s.files, func(f file) bool { return f.sequence == at })
		return s.files[i].name, nil
	}
	n.Schema = results.Schema{Name: NightName, Major: NightMajor, Minor: NightMinor}
	n.Sequence, n.Previous = s.Next(), ""
	if k := len(s.files); k > 0 {
		n.Previous = s.files[k-1].sum
	}
	b, err := n.pack()
	if err != nil {
		return "", err
	}
	sum := hashOf(b)
	name := n.fileName(sum)
	if err := s.put(filepath.Join(s.dir, nightsDir), name, b, 0o666); err != nil {
		return "", err
	}
	s.files = append(s.files, file{name: name, sum: sum, sequence: n.Sequence, previous: n.Previous})
	if err := s.index.add([]*Night{n}, []string{sum}); err != nil {
		return name, &IndexError{err}
	}
	return name, nil
}

// Keep stores a record behind the next night and says where. One that is there
// already is not written again.
func (s *Store) Keep(role string, r *results.Record) (Kept, error) {
	var out bytes.Buffer
	if err := results.Encode(&out, r); err != nil {
		return Kept{}, err
	}
	b := packed(out.Bytes())
	sum := hashOf(b)
	k := Kept{Role: role, SHA256: sum, Bytes: int64(len(b)),
		File: fmt.Sprintf("%s-%s-%s.json.gz", r.Created.UTC().Format("20060102T150405Z"), strings.ReplaceAll(role, " ", "-"), sum[:hashInName])}
	return k, s.put(filepath.Join(s.dir, recordsDir), k.File, b, 0o666)
}

// RoleTimeline is the role of a traced pass's timeline, which [Retention] keeps
// for fewer nights than records.
const RoleTimeline = "timeline"

// timelineSuffix ends the names of timelines.
const timelineSuffix = ".trace.json.gz"

// KeepTimeline stores a copy of the timeline in a file, which a record of that
// time names, and says where: beside the records. One that is there already is
// not written again.
func (s *Store) KeepTimeline(created time.Time, file string) (Kept, error) {
	b, err := readRegular(file)
	if err != nil {
		return Kept{}, fmt.Errorf("read the timeline: %w", err)
	}
	sum := hashOf(b)
	k := Kept{Role: RoleTimeline, SHA256: sum, Bytes: int64(len(b)),
		File: fmt.Sprintf("%s-%s-%s%s", created.UTC().Format("20060102T150405Z"), RoleTimeline, sum[:hashInName], timelineSuffix)}
	return k, s.put(filepath.Join(s.dir, recordsDir), k.File, b, 0o666)
}

// Records is the folder of records and timelines.
func (s *Store) Records() string { return filepath.Join(s.dir, recordsDir) }

// Record reads a record that is kept. One that was thinned is an error that
// wraps fs.ErrNotExist; one that is not as it was written, a [*DamagedError].
func (s *Store) Record(k Kept) (*results.Record, error) {
	path := filepath.Join(s.dir, recordsDir, k.File)
	b, err := readRegular(path)
	if err != nil {
		return nil, fmt.Errorf("the record %s/%s cannot be read: %w", recordsDir, k.File, cause(err))
	}
	if hashOf(b) != k.SHA256 {
		return nil, &DamagedError{s.dir, []string{fmt.Sprintf("%s/%s is not as it was written", recordsDir, k.File)}, recordRemedy}
	}
	return results.ReadFile(path)
}

// RoleProgram is the role of a program that is kept with a pin.
const RoleProgram = "program"

// KeepProgram stores a copy of a program's file, whose SHA-256 must be sum, and
// says where: in a folder of its own, from which [Store.Thin] removes what no pin
// has. One that is there already is not written again. That it could not be started
// from there, as on a file system that starts nothing, is an error.
func (s *Store) KeepProgram(file, sum string) (Kept, error) {
	b, err := readRegular(file)
	if err != nil {
		return Kept{}, fmt.Errorf("read the program: %w", err)
	}
	if hashOf(b) != sum {
		return Kept{}, fmt.Errorf("read the program %s: it is not what it was: its SHA-256 is %s, not %s", file, hashOf(b), sum)
	}
	dir := filepath.Join(s.dir, programsDir)
	if err := os.MkdirAll(dir, 0o777); err != nil {
		return Kept{}, &FullError{dir, err}
	}
	k := Kept{Role: RoleProgram, SHA256: sum, Bytes: int64(len(b)), File: "trbench-" + sum[:hashInName]}
	if err := s.put(dir, k.File, b, 0o777); err != nil {
		return Kept{}, err
	}
	path := filepath.Join(dir, k.File)
	if info, err := os.Stat(path); err == nil && startable(path) != nil {
		_ = os.Chmod(path, info.Mode()|info.Mode()&0o444>>2) // it was there, and somebody took that away
	}
	if err := startable(path); err != nil {
		return Kept{}, fmt.Errorf("no program can be started in %s: %w", dir, err)
	}
	return k, nil
}

// startable says why the system would not start a file as a program: its mode, or
// where it lies.
func startable(path string) error { return unix.Access(path, unix.X_OK) }

// readRegular reads a file, and nothing that never ends or waits for a writer.
func readRegular(path string) ([]byte, error) {
	info, err := os.Stat(path)
	if err != nil {
		return nil, err
	}
	if !info.Mode().IsRegular() {
		return nil, &fs.PathError{Op: "read", Path: path, Err: errors.New("is no regular file")}
	}
	return os.ReadFile(path)
}

// Program is the file of a program that is kept, to be started. One that is not
// as it was written, or that the system would not start, is a [*DamagedError].
func (s *Store) Program(k Kept) (string, error) {
	path := filepath.Join(s.dir, programsDir, k.File)
	b, err := readRegular(path)
	if err != nil {
		return "", fmt.Errorf("the program %s/%s cannot be read: %w", programsDir, k.File, cause(err))
	}
	if hashOf(b) != k.SHA256 {
		return "", &DamagedError{s.dir, []string{fmt.Sprintf("%s/%s is not as it was written", programsDir, k.File)}, programRemedy}
	}
	if err := startable(path); err != nil {
		return "", &DamagedError{s.dir, []string{fmt.Sprintf("%s/%s cannot be started: %v", programsDir, k.File, err)}, startRemedy}
	}
	return path, nil
}

// put writes a file of that name unless there is one as it would be: the names
// hold the hash of what is in them, and one that was damaged is put right.
func (s *Store) put(dir, name string, b []byte, mode fs.FileMode) (err error) {
	path := filepath.Join(dir, name)
	if is, err := readRegular(path); err == nil && bytes.Equal(is, b) {
		return nil
	}
	defer func() {
		if err != nil {
			err = &FullError{path, err}
		}
	}()
	f, err := os.OpenFile(filepath.Join(dir, tempPrefix+NewID()+".tmp"), os.O_WRONLY|os.O_CREATE|os.O_EXCL, mode)
	if err != nil {
		return err
	}
	defer func() {
		if err != nil {
			_ = os.Remove(f.Name())
		}
	}()
	if err := s.write(f, b); err != nil {
		_ = f.Close()
		return err
	}
	if err := f.Close(); err != nil {
		return err
	}
	if err := os.Rename(f.Name(), path); err != nil {
		return err
	}
	d, err := os.Open(dir)
	if err != nil {
		return err
	}
	_ = d.Sync() // some file systems cannot; the file is whole there all the same
	return d.Close()
}

func writeAll(f *os.File, b []byte) error {
	if _, err := f.Write(b); err != nil {
		return err
	}
	return f.Sync()
}

// NewID is 64 random bits in hexadecimal.
func NewID() string {
	var b [8]byte
	_, _ = rand.Read(b[:]) // documented never to fail
	return hex.EncodeToString(b[:])
}

// Sweep removes what was left half written by what was killed: by a night, by
// pinning, or by making the index anew.
func (s *Store) Sweep() error {
	defer s.lock()() // who pins has such files
	indexes, err := filepath.Glob(filepath.Join(s.dir, tempPrefix+"*.sqlite*"))
	if err != nil {
		return err
	}
	for _, name := range indexes {
		// Readers make one without the lock, in seconds.
		if info, err := os.Stat(name); err == nil && time.Since(info.ModTime()) > time.Hour {
			_ = os.Remove(name) // the next one tries again
		}
	}
	for _, d := range []string{nightsDir, recordsDir, programsDir} {
		left, err := filepath.Glob(filepath.Join(s.dir, d, tempPrefix+"*.tmp"))
		if err != nil {
			return err
		}
		for _, name := range left {
			if err := os.Remove(name); err != nil && !errors.Is(err, syscall.ENOENT) {
				return fmt.Errorf("remove what is half written: %w", err)
			}
		}
	}
	return nil
}
