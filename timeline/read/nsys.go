package read

import (
	"database/sql"
	"fmt"
	"math"
	"net/url"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"strings"

	_ "modernc.org/sqlite" // registers the driver; pure Go, as the build has no cgo

	"github.com/tech-renaissance/trbench/timeline"
)

// nsysReader reads an SQLite export of Nsight Systems. Its tables are made as
// they are needed and columns come and go with versions, so each query is made of
// what is there.
type nsysReader struct {
	db     *sql.DB
	path   string
	o      Options
	b      timeline.Builder
	tables map[string]map[string]bool // columns by table

	names        map[int64]timeline.Name // StringIds
	processNamed map[int64]string        // by global pid; an export lists every process of the machine
	processes    map[int64]int32         // by global pid
	threads      map[int64]int32         // by global tid
	devices      map[gpu]int32
	streams      map[nsysStream]int32
	correlations map[joint]int64
	gpuOf        map[gpuKey]int64
}

// gpu tells devices apart: the number that a process knows it by, and which GPU
// that is, -1 where the export does not say.
type gpu struct{ id, gpu int64 }

type gpuKey struct{ pid, id int64 }

type nsysStream struct {
	device   int32
	process  int64
	context  int64
	streamID int64
}

// joint joins launches and ops: correlation ids are a process's own.
type joint struct{ process, id int64 }

const (
	tableKernel  = "CUPTI_ACTIVITY_KIND_KERNEL"
	tableMemcpy  = "CUPTI_ACTIVITY_KIND_MEMCPY"
	tableMemset  = "CUPTI_ACTIVITY_KIND_MEMSET"
	tableGraph   = "CUPTI_ACTIVITY_KIND_GRAPH_TRACE"
	tableRuntime = "CUPTI_ACTIVITY_KIND_RUNTIME"
	tableDriver  = "CUPTI_ACTIVITY_KIND_DRIVER" // of old exports
	tableNVTX    = "NVTX_EVENTS"
	tableStrings = "StringIds"
)

// threadMask is the part of a global tid that tells the thread; the rest is the
// process's global pid.
const threadMask = 0xFFFFFF

func nsys(path string, o Options) (*timeline.Timeline, error) {
	full, err := filepath.Abs(path)
	if err != nil {
		return nil, &Error{File: path, Reason: err.Error(), Err: err}
	}
	// immutable: neither a lock nor a journal is looked for, so that a file in a
	// folder that cannot be written opens, and nothing is written beside it.
	db, err := sql.Open("sqlite", (&url.URL{Scheme: "file", Path: full, RawQuery: "mode=ro&immutable=1&_pragma=query_only(1)&_pragma=trusted_schema(0)&_pragma=cell_size_check(1)"}).String())
	if err != nil {
		return nil, &Error{File: path, Reason: "cannot be opened as SQLite: " + err.Error(), Err: err}
	}
	defer db.Close()
	db.SetMaxOpenConns(1)
	r := &nsysReader{
		db: db, path: path, o: o, tables: map[string]map[string]bool{}, names: map[int64]timeline.Name{}, processNamed: map[int64]string{}, processes: map[int64]int32{},
		threads: map[int64]int32{}, devices: map[gpu]int32{}, streams: map[nsysStream]int32{}, correlations: map[joint]int64{},
		gpuOf: map[gpuKey]int64{},
	}
	if err := r.read(); err != nil {
		return nil, err
	}
	return &r.b.T, nil
}

// again is what to do about a file whose list of tables cannot be read, such as one
// that was cut short: SQLite opens none that is shorter than its head says.
const again = "if it was cut short, copy it again, or export the report again: nsys export --type=sqlite"

func (r *nsysReader) read() error {
	t := &r.b.T
	r.b.Name("")
	t.Source, t.Format = r.path, timeline.FormatNsys
	t.Read.LostAt, t.Read.Dropped = -1, -1
	if err := r.schema(); err != nil {
		return err
	}
	if !r.has(tableStrings) && !r.has("TARGET_INFO_SYSTEM_ENV") || !slices.ContainsFunc(
		[]string{tableKernel, tableMemcpy, tableMemset, tableGraph, tableRuntime, tableDriver, tableNVTX, "TARGET_INFO_SYSTEM_ENV", "ANALYSIS_DETAILS"}, r.has) {
		return &Error{File: r.path, Reason: "is an SQLite database of another program, not an export of Nsight Systems", Hint: known}
	}
	for _, part := range []struct {
		table string
		read  func() error
	}{
		{"TARGET_INFO_SESSION_START_TIME", r.origin},
		{tableStrings, r.strings},
		{"PROCESSES", r.processNames},
		{"TARGET_INFO_CUDA_DEVICE", r.cudaDevices},
		{tableKernel, func() error { return r.ops(tableKernel, timeline.Kernel) }},
		{tableMemcpy, func() error { return r.ops(tableMemcpy, timeline.Copy) }},
		{tableMemset, func() error { return r.ops(tableMemset, timeline.Fill) }},
		{tableGraph, func() error { return r.ops(tableGraph, timeline.Envelope) }},
		{tableRuntime, func() error { return r.calls(tableRuntime) }},
		{tableDriver, func() error { return r.calls(tableDriver) }},
		{tableNVTX, r.ranges},
		{"PROFILER_OVERHEAD", func() error { return r.overhead("PROFILER_OVERHEAD") }},
		{"CUPTI_ACTIVITY_KIND_OVERHEAD", func() error { return r.overhead("CUPTI_ACTIVITY_KIND_OVERHEAD") }},
		{"ThreadNames", r.threadNames},
		{"TARGET_INFO_GPU", r.gpuNames},
		{"DIAGNOSTIC_EVENT", r.diagnostics},
	} {
		if !r.has(part.table) {
			continue
		}
		if err := part.read(); err != nil {
			if r.o.Strict {
				return &Error{File: r.path, Reason: fmt.Sprintf("table %s cannot be read: %v", part.table, err), Hint: "without --strict it is read as far as it can be understood", Err: err}
			}
			// What was read of the table stays.
			t.Read.Truncated = true
			t.Read.LostEvents++
			t.Read.Notes = append(t.Read.Notes, fmt.Sprintf("Table %s cannot be read to its end: %v.", part.table, err))
		}
	}
	r.finish()
	return nil
}

func (r *nsysReader) schema() error {
	fail := func(err error) error {
		return &Error{File: r.path, Reason: "cannot be read as SQLite: " + err.Error(), Hint: again, Err: err}
	}
	// Tables only: a view may compute for ever.
	rows, err := r.db.Query(`SELECT name FROM sqlite_master WHERE type = 'table' AND sql NOT LIKE 'CREATE VIRTUAL%' LIMIT 10000`)
	if err != nil {
		return fail(err)
	}
	var names []string
	for rows.Next() {
		var s string
		if err := rows.Scan(&s); err != nil {
			rows.Close()
			return fail(err)
		}
		names = append(names, s)
	}
	rows.Close()
	if err := rows.Err(); err != nil {
		return fail(err)
	}
	for _, name := range names {
		columns := map[string]bool{}
		rows, err := r.db.Query(`SELECT name FROM pragma_table_info(?)`, name)
		if err != nil {
			return fail(err)
		}
		for rows.Next() {
			var s string
			if rows.Scan(&s) == nil {
				columns[s] = true
			}
		}
		rows.Close()
		r.tables[name] = columns
	}
	return nil
}

func (r *nsysReader) has(table string) bool { return len(r.tables[table]) > 0 }

// row is a result's row by the place of its column; what is NULL, of another
// type or not there is absent.
type row struct {
	cells, own []any // own points into cells
}

func (w row) int(i int) (int64, bool) {
	n, ok := w.cells[i].(int64)
	return n, ok
}

func (w row) text(i int) string {
	switch v := w.cells[i].(type) {
	case string:
		return v
	case []byte:
		return string(v)
	}
	return ""
}

// each asks for columns of a table, NULL for those it has not, and visits its
// rows in the table's order.
func (r *nsysReader) each(table string, columns []string, visit func(row)) error {
	asked := make([]string, len(columns))
	for i, c := range columns {
		asked[i] = "NULL"
		if r.tables[table][c] {
			asked[i] = `"` + c + `"`
		}
	}
	rows, err := r.db.Query(`SELECT ` + strings.Join(asked, ", ") + ` FROM "` + table + `"`)
	if err != nil {
		return err
	}
	defer rows.Close()
	w := row{cells: make([]any, len(columns)), own: make([]any, len(columns))}
	for i := range w.cells {
		w.own[i] = &w.cells[i]
	}
	for rows.Next() {
		if err := rows.Scan(w.own...); err != nil {
			return err
		}
		if len(r.b.T.Ops)+len(r.b.T.Calls)+len(r.b.T.Ranges) >= maxEvents {
			return fmt.Errorf("only the first %d events are kept", maxEvents)
		}
		visit(w)
	}
	return rows.Err()
}

func (r *nsysReader) origin() error {
	return r.each("TARGET_INFO_SESSION_START_TIME", []string{"utcEpochNs"}, func(w row) {
		if n, ok := w.int(0); ok {
			r.b.T.OriginNs = n
		}
	})
}

func (r *nsysReader) strings() error {
	total := 0
	return r.each(tableStrings, []string{"id", "value"}, func(w row) {
		id, ok := w.int(0)
		s := w.text(1)
		if !ok || total > maxNames {
			return
		}
		if len(s) > maxNameBytes {
			s = s[:maxNameBytes]
		}
		total += len(s) + 40
		r.names[id] = r.name(s)
	})
}

// name keeps a text without control characters.
func (r *nsysReader) name(s string) timeline.Name {
	if !printable([]byte(s)) {
		s = strings.ToValidUTF8(strings.Map(func(c rune) rune {
			if c < 0x20 || c >= 0x7f && c < 0xa0 {
				return ' '
			}
			return c
		}, s), "\ufffd")
	}
	return r.b.Name(s)
}

func (r *nsysReader) processNames() error {
	return r.each("PROCESSES", []string{"globalPid", "name"}, func(w row) {
		if id, ok := w.int(0); ok {
			r.processNamed[id] = clean([]byte(w.text(1)))
		}
	})
}

// process is a process of the recording, by its global pid.
func (r *nsysReader) process(globalPid int64) int32 {
	p, ok := r.processes[globalPid]
	if !ok {
		p = int32(len(r.b.T.Processes))
		r.processes[globalPid] = p
		r.b.T.Processes = append(r.b.T.Processes, timeline.Process{
			ID: strconv.FormatInt(pidOf(globalPid), 10), Name: r.processNamed[globalPid], Rank: timeline.None,
		})
	}
	return p
}

func pidOf(globalPid int64) int64 { return globalPid >> 24 & 0xFFFFFF }

func (r *nsysReader) thread(globalTid int64) int32 {
	th, ok := r.threads[globalTid]
	if !ok {
		th = int32(len(r.b.T.Threads))
		r.threads[globalTid] = th
		r.b.T.Threads = append(r.b.T.Threads, timeline.Thread{Process: r.process(globalTid &^ threadMask), ID: strconv.FormatInt(globalTid&threadMask, 10)})
	}
	return th
}

func (r *nsysReader) cudaDevices() error {
	return r.each("TARGET_INFO_CUDA_DEVICE", []string{"gpuId", "cudaId", "pid"}, func(w row) {
		g, ok := w.int(0)
		id, ok2 := w.int(1)
		pid, ok3 := w.int(2)
		if ok && ok2 && ok3 {
			r.gpuOf[gpuKey{pid, id}] = g
		}
	})
}

func (r *nsysReader) correlation(process, id int64) int64 {
	k := joint{process, id}
	c, ok := r.correlations[k]
	if !ok {
		c = int64(len(r.correlations)) + 1
		r.correlations[k] = c
	}
	return c
}

// ops reads device work of one table. A graph's replay stands in GRAPH_TRACE
// instead of its kernels.
func (r *nsysReader) ops(table string, kind timeline.Kind) error {
	t := &r.b.T
	text := func(w row, i int) timeline.Name {
		if id, ok := w.int(i); ok {
			return r.names[id]
		}
		return 0
	}
	return r.each(table, []string{"start", "end", "deviceId", "contextId", "streamId", "correlationId", "globalPid", "demangledName", "shortName", "mangledName",
		"graphId", "graphNodeId", "bytes", "copyKind", "originalGraphId"}, func(w row) {
		o := timeline.Op{Kind: kind}
		start, ok := w.int(0)
		end, ok2 := w.int(1)
		if o.Timed = ok && ok2 && usable(start) && usable(end) && end >= start && (start != 0 || end != 0); o.Timed {
			o.StartNs, o.EndNs = start, end
		} else {
			t.Read.BadTimes++
		}
		process, known := w.int(6)
		device, _ := w.int(2)
		context, _ := w.int(3)
		id, _ := w.int(4)
		o.Device = r.device(process, device)
		o.Stream = r.stream(nsysStream{o.Device, process, context, id}, known)
		if c, ok := w.int(5); ok {
			o.Correlation = r.correlation(process, c)
		}
		if n, ok := w.int(10); ok && n >= 0 {
			o.Graph = uint64(n) + 1 // 0 is unknown
		}
		if n, ok := w.int(11); ok && n >= 0 {
			o.Node = uint64(n) + 1
		}
		if n, ok := w.int(12); ok && n > 0 {
			o.Bytes = n
		}
		switch kind {
		case timeline.Kernel:
			for i := 7; i <= 9 && o.Name == 0; i++ {
				o.Name = text(w, i)
			}
		case timeline.Copy:
			n, _ := w.int(13)
			o.Name = r.b.Name(copyName(n))
		case timeline.Fill:
			o.Name = r.b.Name("Memset")
		case timeline.Envelope:
			o.Name = r.b.Name("graph replay")
			if n, ok := w.int(10); ok {
				o.Name = r.b.Name(fmt.Sprintf("graph %d replay", n))
			}
		}
		t.Ops = append(t.Ops, o)
	})
}

func usable(ns int64) bool { return ns > -limitNs && ns < limitNs }

// copyName is a copy's direction, CUPTI's CUpti_ActivityMemcpyKind.
func copyName(kind int64) string {
	names := [...]string{"", "HtoD", "DtoH", "HtoA", "AtoH", "AtoA", "AtoD", "DtoA", "DtoD", "HtoH", "PtoP"}
	if kind > 0 && kind < int64(len(names)) {
		return "Memcpy " + names[kind]
	}
	return "Memcpy"
}

func (r *nsysReader) device(process, id int64) int32 {
	key := gpu{id: id, gpu: -1}
	if g, ok := r.gpuOf[gpuKey{pidOf(process), id}]; ok {
		key.gpu = g
	}
	d, ok := r.devices[key]
	if !ok {
		d = int32(len(r.b.T.Devices))
		r.devices[key] = d
		r.b.T.Devices = append(r.b.T.Devices, timeline.Device{ID: strconv.FormatInt(id, 10)})
	}
	return d
}

func (r *nsysReader) stream(key nsysStream, known bool) int32 {
	s, ok := r.streams[key]
	if !ok {
		s = int32(len(r.b.T.Streams))
		r.streams[key] = s
		st := timeline.Stream{Device: key.device, Process: timeline.None, ID: strconv.FormatInt(key.streamID, 10)}
		if known {
			st.Process = r.process(key.process)
		}
		r.b.T.Streams = append(r.b.T.Streams, st)
	}
	return s
}

func (r *nsysReader) calls(table string) error {
	t := &r.b.T
	clean, classes := map[timeline.Name]timeline.Name{}, map[timeline.Name]timeline.CallClass{}
	return r.each(table, []string{"start", "end", "globalTid", "correlationId", "nameId"}, func(w row) {
		start, ok := w.int(0)
		if !ok || !usable(start) {
			t.Read.LostEvents++
			return
		}
		end, ok := w.int(1)
		if !ok || !usable(end) || end < start {
			end = start
		}
		c := timeline.Call{StartNs: start, EndNs: end, Thread: timeline.None}
		tid, ok := w.int(2)
		if ok {
			c.Thread = r.thread(tid)
		}
		if id, ok := w.int(3); ok {
			c.Correlation = r.correlation(tid&^threadMask, id)
		}
		if id, ok := w.int(4); ok {
			n, done := clean[r.names[id]]
			if !done {
				n = r.b.Name(timeline.CleanAPIName(t.Text(r.names[id])))
				clean[r.names[id]], classes[n] = n, timeline.Classify(t.Text(n))
			}
			c.Name, c.Class = n, classes[n]
		}
		t.Calls = append(t.Calls, c)
	})
}

// Event types of NVTX_EVENTS that are ranges: pushed and popped, and started and
// ended, in each of the two with a text in another encoding.
const (
	nvtxMark        = 34
	nvtxPushPop     = 59
	nvtxStartEnd    = 60
	nvtxDomain      = 75
	nvtxPushPopText = 70
	nvtxStartText   = 71
)

func (r *nsysReader) ranges() error {
	t := &r.b.T
	type key struct{ process, domain int64 }
	domains := map[key]timeline.Name{}
	columns := []string{"start", "end", "eventType", "text", "textId", "globalTid", "domainId"}
	text := func(w row) string {
		if s := w.text(3); s != "" {
			return s
		}
		id, _ := w.int(4)
		return t.Text(r.names[id])
	}
	if err := r.each(tableNVTX, columns, func(w row) {
		if kind, _ := w.int(2); kind == nvtxDomain {
			tid, _ := w.int(5)
			d, _ := w.int(6)
			domains[key{tid &^ threadMask, d}] = r.name(text(w))
		}
	}); err != nil {
		return err
	}
	total := 0
	var unended []int32
	err := r.each(tableNVTX, columns, func(w row) {
		kind, ok := w.int(2)
		switch {
		case ok && kind != nvtxPushPop && kind != nvtxStartEnd && kind != nvtxPushPopText && kind != nvtxStartText && kind != nvtxMark:
			return
		}
		start, ok := w.int(0)
		if !ok || !usable(start) {
			t.Read.LostEvents++
			return
		}
		end, ended := w.int(1)
		if !ended || !usable(end) || end < start {
			end = start
		}
		g := timeline.Range{StartNs: start, EndNs: end, Thread: timeline.None}
		tid, ok := w.int(5)
		if ok {
			g.Thread = r.thread(tid)
		}
		d, _ := w.int(6)
		g.Domain = domains[key{tid &^ threadMask, d}]
		s := text(w)
		if total > maxNames {
			s = "(a name beyond those that are kept)"
		}
		had := len(t.Names)
		g.Name, g.Class = r.rangeName(s)
		if len(t.Names) > had {
			total += len(s) + 40
		}
		if !ended && kind != nvtxMark {
			unended = append(unended, int32(len(t.Ranges)))
		}
		t.Ranges = append(t.Ranges, g)
	})
	// What never ended was cut off by the end of the recording.
	if len(unended) > 0 {
		last := r.last()
		for _, i := range unended {
			t.Ranges[i].EndNs = max(t.Ranges[i].StartNs, last)
		}
		t.Read.Notes = append(t.Read.Notes, fmt.Sprintf("%d ranges do not end in the recording; they are taken to last until it ends.", len(unended)))
	}
	return err
}

// last is the end of the recording as far as it is known.
func (r *nsysReader) last() int64 {
	last := int64(math.MinInt64)
	t := &r.b.T
	for i := range t.Ops {
		if t.Ops[i].Timed {
			last = max(last, t.Ops[i].EndNs)
		}
	}
	for i := range t.Calls {
		last = max(last, t.Calls[i].EndNs)
	}
	for i := range t.Ranges {
		last = max(last, t.Ranges[i].EndNs)
	}
	return last
}

// emitted is how PyTorch writes an operator as an NVTX range: its name, and then
// what differs from call to call.
var emitted = regexp.MustCompile(`^(.*?)(, (seq|op_id|sizes|input_op_ids) = .*)$`)

// rangeName is a range's name and class. An operator loses the numbers behind
// its name, so that equal ones have equal names.
func (r *nsysReader) rangeName(s string) (timeline.Name, timeline.RangeClass) {
	if len(s) > maxNameBytes {
		s = s[:maxNameBytes]
	}
	class := timeline.RangeUser
	if strings.Contains(s, ", ") {
		if m := emitted.FindStringSubmatch(s); m != nil {
			s, class = m[1], timeline.RangeOperator
		}
	}
	switch {
	case isStep(s):
		class = timeline.RangeStep
	case isFeed(s):
		class = timeline.RangeFeed
	case strings.HasPrefix(s, "aten::"):
		class = timeline.RangeOperator
	}
	return r.name(s), class
}

// commandBufferFull is CUPTI's overhead for a device that is behind: no work of
// the profiler's.
const commandBufferFull = 8

func (r *nsysReader) overhead(table string) error {
	t := &r.b.T
	return r.each(table, []string{"start", "end", "globalTid", "nameId", "overheadType"}, func(w row) {
		start, ok := w.int(0)
		end, ok2 := w.int(1)
		if kind, is := w.int(4); !ok || !ok2 || !usable(start) || !usable(end) || end < start || is && kind == commandBufferFull && table != "PROFILER_OVERHEAD" {
			return
		}
		g := timeline.Range{StartNs: start, EndNs: end, Thread: timeline.None, Class: timeline.RangeOverhead}
		if tid, ok := w.int(2); ok {
			g.Thread = r.thread(tid)
		}
		if id, ok := w.int(3); ok {
			g.Name = r.names[id]
		}
		t.Read.OverheadNs += end - start
		t.Ranges = append(t.Ranges, g)
	})
}

func (r *nsysReader) threadNames() error {
	return r.each("ThreadNames", []string{"nameId", "globalTid"}, func(w row) {
		id, _ := w.int(0)
		tid, ok := w.int(1)
		if th, here := r.threads[tid]; ok && here {
			r.b.T.Threads[th].Name = r.b.T.Text(r.names[id])
		}
	})
}

func (r *nsysReader) gpuNames() error {
	names := map[int64]string{}
	err := r.each("TARGET_INFO_GPU", []string{"id", "name"}, func(w row) {
		if id, ok := w.int(0); ok {
			names[id] = clean([]byte(w.text(1)))
		}
	})
	for key, d := range r.devices {
		g := key.gpu
		if g < 0 {
			g = key.id
		}
		r.b.T.Devices[d].Name = names[g]
	}
	return err
}

// lostWords are in what Nsight Systems says when events are missing.
var lostWords = regexp.MustCompile(`(?i)\b(drop|dropped|lost|discard|discarded|missing|incomplete|not all|overflow)`)

// diagnostics takes over what the profiler itself warns of.
func (r *nsysReader) diagnostics() error {
	t := &r.b.T
	labels := map[int64]string{2: "warning", 3: "error"}
	if r.has("ENUM_DIAGNOSTIC_SEVERITY_LEVEL") {
		clear(labels)
		if err := r.each("ENUM_DIAGNOSTIC_SEVERITY_LEVEL", []string{"id", "name"}, func(w row) {
			if id, ok := w.int(0); ok {
				labels[id] = strings.ToLower(w.text(1))
			}
		}); err != nil {
			return err
		}
	}
	return r.each("DIAGNOSTIC_EVENT", []string{"severity", "text"}, func(w row) {
		level, _ := w.int(0)
		s := clean([]byte(w.text(1)))
		label := labels[level]
		lost := lostWords.MatchString(s) && (label == "warning" || label == "error")
		if (label == "error" && !strings.HasPrefix(s, "Profiling has st") && !strings.HasPrefix(s, "Number of")) || lost {
			if len(t.Read.Notes) < 50 {
				t.Read.Notes = append(t.Read.Notes, "Nsight Systems says: "+strings.TrimSpace(s))
			}
			if lost {
				t.Read.Truncated = true
			}
		}
	})
}

func (r *nsysReader) finish() {
	t := &r.b.T
	// Two processes may know different GPUs by the same number.
	count := map[int64]int{}
	for key := range r.devices {
		count[key.id]++
	}
	renamed := false
	for _, n := range count {
		renamed = renamed || n > 1
	}
	if renamed {
		for key, d := range r.devices {
			if key.gpu >= 0 {
				t.Devices[d].ID = strconv.FormatInt(key.gpu, 10)
			} else {
				t.Devices[d].ID += " (GPU unknown)"
			}
		}
		t.Read.Notes = append(t.Read.Notes, "Processes know different GPUs by the same number; devices are numbered as the machine numbers its GPUs.")
	}
	kernels, envelopes := 0, 0
	for i := range t.Ops {
		switch t.Ops[i].Kind {
		case timeline.Kernel:
			kernels++
		case timeline.Envelope:
			envelopes++
		}
	}
	for _, part := range []struct{ table, what string }{
		{tableKernel, "kernels"}, {tableRuntime, "launch calls"}, {tableNVTX, "NVTX ranges"},
	} {
		if !r.has(part.table) && !(part.table == tableRuntime && r.has(tableDriver)) {
			t.Read.NotRecorded = append(t.Read.NotRecorded, part.what)
		}
	}
	if envelopes > 0 {
		t.Read.Notes = append(t.Read.Notes, fmt.Sprintf("%d graph replays are recorded as one event each (--cuda-graph-trace=graph, the default of nsys): "+
			"busy time counts them as busy from end to end, so it is an upper bound; record with --cuda-graph-trace=node to see inside.", envelopes))
	}
}
