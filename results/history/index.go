package history

import (
	"database/sql"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"net/url"
	"os"
	"path/filepath"
	"time"

	_ "modernc.org/sqlite" // registers the driver; pure Go, as the build has no cgo

	"github.com/tech-renaissance/trbench/results"
)

// indexVersion is that of the tables below. An index of another version is made
// anew.
const indexVersion = 2

const tables = `
CREATE TABLE nights (seq INTEGER PRIMARY KEY, name TEXT, sum TEXT, previous TEXT, id TEXT, began INTEGER, ended INTEGER,
	verdict TEXT, line TEXT, revision TEXT, rest TEXT);
CREATE UNIQUE INDEX night_id ON nights(id);
CREATE TABLE rows (row INTEGER PRIMARY KEY, name TEXT UNIQUE, key TEXT, unit TEXT, direction TEXT);
CREATE TABLE points (row INTEGER, seq INTEGER, value REAL, PRIMARY KEY (row, seq)) WITHOUT ROWID;
CREATE TABLE processes (row INTEGER, seq INTEGER, list TEXT, PRIMARY KEY (row, seq)) WITHOUT ROWID;
CREATE TABLE changes (seq INTEGER, change TEXT);
CREATE TABLE journals (name TEXT PRIMARY KEY, lines INTEGER, digest TEXT);
`

// index is SQLite's. All of it can be made from the files.
type index struct{ db *sql.DB }

// inMemory is the index of a folder that cannot be written.
const inMemory = ":memory:"

// openIndex opens an index and says what it knows of files. The error says why
// it cannot be used.
func openIndex(path string) (*index, map[string]indexed, error) {
	if _, err := os.Stat(path); errors.Is(err, fs.ErrNotExist) {
		return nil, nil, errors.New("there was none")
	}
	x, err := openTables(path)
	if err != nil {
		return nil, nil, err
	}
	known, err := x.nights()
	if err != nil {
		return nil, nil, errors.Join(err, x.close())
	}
	return x, known, nil
}

// makeIndex makes an index of nights. It is whole before it has its name, so
// that readers see all of it or none; one that has the old one open keeps that.
func makeIndex(path string, nights func() ([]*Night, []string)) (_ *index, err error) {
	if path == inMemory {
		x, err := makeTables(path)
		if err != nil {
			return nil, err
		}
		if err := x.add(nights()); err != nil {
			return nil, errors.Join(err, x.close())
		}
		return x, nil
	}
	temp := filepath.Join(filepath.Dir(path), tempPrefix+NewID()+".sqlite")
	defer func() {
		if err != nil {
			_ = removeIndex(temp)
		}
	}()
	x, err := makeTables(temp)
	if err != nil {
		return nil, err
	}
	if err := errors.Join(x.add(nights()), x.close()); err != nil {
		return nil, err
	}
	if err := removeIndex(path); err != nil { // with its journal, which is of another file
		return nil, err
	}
	if err := os.Rename(temp, path); err != nil {
		return nil, err
	}
	return openTables(path)
}

func removeIndex(path string) error {
	for _, suffix := range []string{"-journal", "-wal", "-shm", ""} {
		if err := os.Remove(path + suffix); err != nil && !errors.Is(err, fs.ErrNotExist) {
			return fmt.Errorf("remove the history's index: %w", err)
		}
	}
	return nil
}

func connect(path, mode string) (*sql.DB, error) {
	source := path
	if path != inMemory {
		full, err := filepath.Abs(path)
		if err != nil {
			return nil, err
		}
		source = (&url.URL{Scheme: "file", Path: full, RawQuery: "mode=" + mode + "&_pragma=busy_timeout(5000)&_pragma=synchronous(normal)&_txlock=immediate"}).String()
	}
	db, err := sql.Open("sqlite", source)
	if err != nil {
		return nil, err
	}
	db.SetMaxOpenConns(1)
	return db, nil
}

func openTables(path string) (*index, error) {
	db, err := connect(path, "rw")
	if err != nil {
		return nil, err
	}
	var version int
	var ok string
	err = db.QueryRow(`PRAGMA user_version`).Scan(&version)
	switch {
	case err == nil && version != indexVersion:
		err = fmt.Errorf("it is of version %d, not %d", version, indexVersion)
	case err == nil:
		if err = db.QueryRow(`PRAGMA quick_check(1)`).Scan(&ok); err == nil && ok != "ok" {
			err = fmt.Errorf("it is damaged: %s", ok)
		}
	}
	if err != nil {
		return nil, errors.Join(err, db.Close())
	}
	return &index{db}, nil
}

func makeTables(path string) (*index, error) {
	db, err := connect(path, "rwc")
	if err != nil {
		return nil, err
	}
	// Version and tables in one transaction: half an index has version 0.
	if _, err := db.Exec(fmt.Sprintf("BEGIN; %s PRAGMA user_version = %d; COMMIT", tables, indexVersion)); err != nil {
		return nil, errors.Join(err, db.Close())
	}
	return &index{db}, nil
}

func (x *index) close() error {
	if x == nil {
		return nil
	}
	return x.db.Close()
}

// indexed is what the index knows of a file.
type indexed struct{ sum, previous string }

func (x *index) nights() (map[string]indexed, error) {
	out := map[string]indexed{}
	err := x.each(`SELECT name, sum, previous FROM nights`, nil, func(scan func(...any) error) error {
		var name string
		var i indexed
		err := scan(&name, &i.sum, &i.previous)
		out[name] = i
		return err
	})
	return out, err
}

// each calls f for every row of an answer.
func (x *index) each(query string, args []any, f func(scan func(...any) error) error) error {
	rows, err := x.db.Query(query, args...)
	if err != nil {
		return fmt.Errorf("ask the history's index: %w", err)
	}
	defer rows.Close()
	for rows.Next() {
		if err := f(rows.Scan); err != nil {
			return fmt.Errorf("ask the history's index: %w", err)
		}
	}
	return rows.Err()
}

func (x *index) find(id string) (sequence int, found bool, err error) {
	err = x.db.QueryRow(`SELECT seq FROM nights WHERE id = ?`, id).Scan(&sequence)
	if errors.Is(err, sql.ErrNoRows) {
		return 0, false, nil
	}
	return sequence, err == nil, err
}

// journal is how many lines a journal had, and the digest of the last of them.
func (x *index) journal(name string) (lines int, last string, err error) {
	err = x.db.QueryRow(`SELECT lines, digest FROM journals WHERE name = ?`, name).Scan(&lines, &last)
	if errors.Is(err, sql.ErrNoRows) {
		return 0, "", nil
	}
	return lines, last, err
}

// setJournal keeps what a journal has come to. A reader may be late with it, so
// fewer lines than are known change nothing.
func (x *index) setJournal(name string, lines int, last string) error {
	_, err := x.db.Exec(`INSERT INTO journals VALUES (?, ?, ?) ON CONFLICT (name)
		DO UPDATE SET lines = excluded.lines, digest = excluded.digest WHERE excluded.lines > journals.lines`, name, lines, last)
	return err
}

// add puts nights in, all or none.
func (x *index) add(nights []*Night, sums []string) (err error) {
	if len(nights) == 0 {
		return nil
	}
	tx, err := x.db.Begin()
	if err != nil {
		return err
	}
	defer func() {
		if err != nil {
			_ = tx.Rollback()
		}
	}()
	rowIDs := map[string]int64{}
	found, err := tx.Query(`SELECT row, name FROM rows`)
	if err != nil {
		return err
	}
	for found.Next() {
		var id int64
		var name string
		if err := found.Scan(&id, &name); err != nil {
			_ = found.Close()
			return err
		}
		rowIDs[name] = id
	}
	if err := errors.Join(found.Err(), found.Close()); err != nil {
		return err
	}
	point, err := tx.Prepare(`INSERT INTO points VALUES (?, ?, ?)`)
	if err != nil {
		return err
	}
	defer point.Close()
	list, err := tx.Prepare(`INSERT INTO processes VALUES (?, ?, ?)`)
	if err != nil {
		return err
	}
	defer list.Close()
	for i, n := range nights {
		var there int
		if err := tx.QueryRow(`SELECT count(*) FROM nights WHERE id = ?`, n.ID).Scan(&there); err != nil {
			return err
		}
		if there > 0 {
			continue // another reader was faster
		}
		if err := addNight(tx, point, list, n, sums[i], rowIDs); err != nil {
			return fmt.Errorf("night %d: %w", n.Sequence, err)
		}
	}
	return tx.Commit()
}

// rest is what the index has of a night and no query asks for.
type rest struct {
	LeftOut  []string          `json:"left_out,omitempty"`
	Warnings []results.Warning `json:"warnings,omitempty"`
	Base     []string          `json:"base,omitempty"`
	Records  []Kept            `json:"records,omitempty"`
	Sentinel *Sentinel         `json:"sentinel,omitempty"`
	Slower   []string          `json:"slower,omitempty"`
}

func addNight(tx *sql.Tx, point, list *sql.Stmt, n *Night, sum string, rowIDs map[string]int64) error {
	more := rest{LeftOut: n.LeftOut, Warnings: n.Warnings, Base: n.Base, Records: n.Records, Sentinel: n.Sentinel}
	for _, r := range n.Rows {
		if r.Verdict == results.Slower {
			more.Slower = append(more.Slower, r.Key.String())
		}
	}
	text, err := json.Marshal(more)
	if err != nil {
		return err
	}
	if _, err := tx.Exec(`INSERT INTO nights VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?)`, n.Sequence, n.fileName(sum), sum, n.Previous, n.ID,
		n.Began.UnixNano(), n.Ended.UnixNano(), n.Verdict, n.Line, n.Program.Revision, string(text)); err != nil {
		return err
	}
	for _, r := range n.Rows {
		name := r.Key.String()
		id, ok := rowIDs[name]
		if !ok {
			key, err := json.Marshal(r.Key)
			if err != nil {
				return err
			}
			id = int64(len(rowIDs) + 1)
			if _, err := tx.Exec(`INSERT INTO rows VALUES (?, ?, ?, ?, ?)`, id, name, string(key), r.Unit, r.Direction); err != nil {
				return err
			}
			rowIDs[name] = id
		}
		processes, err := json.Marshal(r.Processes)
		if err != nil {
			return err
		}
		if _, err := point.Exec(id, n.Sequence, r.Value()); err != nil {
			return err
		}
		if _, err := list.Exec(id, n.Sequence, string(processes)); err != nil {
			return err
		}
	}
	for _, k := range n.Changes {
		text, err := json.Marshal(k)
		if err != nil {
			return err
		}
		if _, err := tx.Exec(`INSERT INTO changes VALUES (?, ?)`, n.Sequence, string(text)); err != nil {
			return err
		}
	}
	return nil
}

// Brief is a night in a list.
type Brief struct {
	Sequence int               `json:"sequence"`
	ID       string            `json:"id"`
	File     string            `json:"file"`
	Began    time.Time         `json:"began"`
	Ended    time.Time         `json:"ended"`
	Verdict  string            `json:"verdict"`
	Line     string            `json:"line"`
	Revision string            `json:"revision"`
	LeftOut  []string          `json:"left_out"`
	Warnings []results.Warning `json:"warnings"`
	Base     []string          `json:"base"`
	Records  []Kept            `json:"records"`
	Sentinel *Sentinel         `json:"sentinel"`
	// Slower names the rows that were slower.
	Slower []string `json:"slower"`
}

// listed makes a list of none an empty one: in JSON null would be "not known".
func listed[T any](list []T) []T {
	if list == nil {
		return []T{}
	}
	return list
}

// List is all nights, the first one first.
func (s *Store) List() ([]Brief, error) {
	out := []Brief{}
	err := s.index.each(`SELECT seq, id, name, began, ended, verdict, line, revision, rest FROM nights ORDER BY seq`, nil, func(scan func(...any) error) error {
		var b Brief
		var began, ended int64
		var text string
		if err := scan(&b.Sequence, &b.ID, &b.File, &began, &ended, &b.Verdict, &b.Line, &b.Revision, &text); err != nil {
			return err
		}
		b.Began, b.Ended = time.Unix(0, began).UTC(), time.Unix(0, ended).UTC()
		var more rest
		if err := json.Unmarshal([]byte(text), &more); err != nil {
			return err
		}
		b.LeftOut, b.Warnings, b.Base, b.Records, b.Sentinel, b.Slower = listed(more.LeftOut), listed(more.Warnings), listed(more.Base), listed(more.Records), more.Sentinel, listed(more.Slower)
		out = append(out, b)
		return nil
	})
	return out, err
}

// Series are the rows that keep says, each over all nights that have it. Without
// processes the points have their value alone, which is much faster.
func (s *Store) Series(keep func(results.RowKey) bool, processes bool) ([]results.Series, error) {
	type night struct {
		id    string
		began time.Time
	}
	nights := make(map[int]night, len(s.files))
	if err := s.index.each(`SELECT seq, id, began FROM nights`, nil, func(scan func(...any) error) error {
		var seq int
		var id string
		var began int64
		err := scan(&seq, &id, &began)
		nights[seq] = night{id, time.Unix(0, began).UTC()}
		return err
	}); err != nil {
		return nil, err
	}
	out := []results.Series{}
	var ids []int64
	if err := s.index.each(`SELECT row, key, unit, direction FROM rows ORDER BY row`, nil, func(scan func(...any) error) error {
		var id int64
		var key string
		var one results.Series
		if err := scan(&id, &key, &one.Unit, &one.Direction); err != nil {
			return err
		}
		if err := json.Unmarshal([]byte(key), &one.Row); err != nil {
			return err
		}
		if keep == nil || keep(one.Row) {
			out, ids = append(out, one), append(ids, id)
		}
		return nil
	}); err != nil {
		return nil, err
	}
	for i, id := range ids {
		query := `SELECT seq, value FROM points WHERE row = ? ORDER BY seq`
		if processes {
			query = `SELECT seq, value, list FROM points JOIN processes USING (row, seq) WHERE row = ? ORDER BY seq`
		}
		if err := s.index.each(query, []any{id}, func(scan func(...any) error) error {
			var p results.Point
			var err error
			if processes {
				var text string
				if err = scan(&p.Sequence, &p.Value, &text); err == nil {
					err = json.Unmarshal([]byte(text), &p.Processes)
				}
			} else {
				err = scan(&p.Sequence, &p.Value)
			}
			n := nights[p.Sequence]
			p.Run, p.Created = n.id, n.began
			out[i].Points = append(out[i].Points, p)
			return err
		}); err != nil {
			return nil, err
		}
	}
	return out, nil
}

// Known are the change points that nights found.
func (s *Store) Known() ([]Known, error) {
	var out []Known
	err := s.index.each(`SELECT change FROM changes ORDER BY seq, rowid`, nil, func(scan func(...any) error) error {
		var text string
		var k Known
		if err := scan(&text); err != nil {
			return err
		}
		err := json.Unmarshal([]byte(text), &k)
		out = append(out, k)
		return err
	})
	return out, err
}

// Rates are the guard's, by the sentinels of the last [SentinelNights] nights
// that had one.
func (s *Store) Rates() (Rates, error) {
	list, err := s.List()
	if err != nil {
		return Rates{}, err
	}
	var have []Sentinel
	for _, b := range list {
		if b.Sentinel != nil {
			have = append(have, *b.Sentinel)
		}
	}
	return ratesOf(have[max(0, len(have)-SentinelNights):]), nil
}
