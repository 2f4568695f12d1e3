package read_test

import (
	"database/sql"
	"errors"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/tech-renaissance/trbench/timeline"
	"github.com/tech-renaissance/trbench/timeline/read"
)

// database writes an SQLite file.
func database(t testing.TB, statements string) string {
	t.Helper()
	path := filepath.Join(t.TempDir(), "trace export.sqlite")
	db, err := sql.Open("sqlite", path)
	if err != nil {
		t.Fatal(err)
	}
	if _, err := db.Exec(statements); err != nil {
		t.Fatal(err)
	}
	if err := db.Close(); err != nil {
		t.Fatal(err)
	}
	return path
}

// pid 7 and pid 8 on host 1, as global pids, and their threads 71 and 81.
const (
	strings2 = `CREATE TABLE StringIds(id INTEGER, value TEXT); INSERT INTO StringIds VALUES (1,'k1'),(2,'cudaLaunchKernel_v7000'),(3,'cuGraphLaunch_ptsz'),(4,'python3'),(5,'aten::add, op_id = 7');`
	kernels2 = `CREATE TABLE CUPTI_ACTIVITY_KIND_KERNEL(start INTEGER, end INTEGER, deviceId INTEGER, contextId INTEGER, streamId INTEGER, correlationId INTEGER, globalPid INTEGER, demangledName INTEGER, shortName INTEGER);`
	calls2   = `CREATE TABLE CUPTI_ACTIVITY_KIND_RUNTIME(start INTEGER, end INTEGER, globalTid INTEGER, correlationId INTEGER, nameId INTEGER);`
	p7       = "281475094151168" // 1<<48 | 7<<24
	p8       = "281475110928384"
	t71      = "281475094151239"
	t81      = "281475110928465"
)

func TestNsys(t *testing.T) {
	for _, test := range []struct{ name, sql, want, notRecorded, note string }{
		{"two processes with the same correlation", strings2 + kernels2 + calls2 + `
			INSERT INTO CUPTI_ACTIVITY_KIND_KERNEL VALUES (100,120,0,1,7,5,` + p7 + `,1,NULL), (200,220,1,1,7,5,` + p8 + `,NULL,1);
			INSERT INTO CUPTI_ACTIVITY_KIND_RUNTIME VALUES (10,20,` + t71 + `,5,2), (30,40,` + t81 + `,5,2);`,
			`kernel "k1" 100+20 device 0 stream 7 c1
kernel "k1" 200+20 device 1 stream 7 c2
call "cudaLaunchKernel" 10+10 on 7/71 c1 class 1
call "cudaLaunchKernel" 30+10 on 8/81 c2 class 1
`, "NVTX ranges", ""},
		{"few columns, odd types, no times", strings2 + `CREATE TABLE CUPTI_ACTIVITY_KIND_KERNEL(start, end, shortName INTEGER);
			INSERT INTO CUPTI_ACTIVITY_KIND_KERNEL VALUES (100,120,1), ('soon',120,1), (0,0,1), (50,40,99), (NULL,NULL,NULL), (9000000000000000000,9000000000000000001,1);`,
			`kernel "k1" 100+20 device 0 stream 0 c0
kernel "k1" untimed device 0 stream 0 c0
kernel "k1" untimed device 0 stream 0 c0
kernel "" untimed device 0 stream 0 c0
kernel "" untimed device 0 stream 0 c0
kernel "k1" untimed device 0 stream 0 c0
`, "launch calls,NVTX ranges", ""},
		{"graph replays as envelopes", strings2 + calls2 + `CREATE TABLE CUPTI_ACTIVITY_KIND_GRAPH_TRACE(start INTEGER, end INTEGER, deviceId INTEGER, streamId INTEGER, correlationId INTEGER, globalPid INTEGER, graphId INTEGER);
			INSERT INTO CUPTI_ACTIVITY_KIND_GRAPH_TRACE VALUES (100,900,0,7,5,` + p7 + `,3); INSERT INTO CUPTI_ACTIVITY_KIND_RUNTIME VALUES (10,20,` + t71 + `,5,3);`,
			"envelope \"graph 3 replay\" 100+800 device 0 stream 7 c1 graph 4 node 0\ncall \"cuGraphLaunch\" 10+10 on 7/71 c1 class 2\n", "kernels,NVTX ranges", "--cuda-graph-trace=node"},
		{"copies, fills, ranges, overhead", strings2 + `CREATE TABLE CUPTI_ACTIVITY_KIND_MEMCPY(start INTEGER, end INTEGER, deviceId INTEGER, streamId INTEGER, bytes INTEGER, copyKind INTEGER);
			INSERT INTO CUPTI_ACTIVITY_KIND_MEMCPY VALUES (1,2,0,7,64,1), (3,4,0,7,64,77);
			CREATE TABLE CUPTI_ACTIVITY_KIND_MEMSET(start INTEGER, end INTEGER, deviceId INTEGER, streamId INTEGER, bytes INTEGER); INSERT INTO CUPTI_ACTIVITY_KIND_MEMSET VALUES (5,6,0,7,8);
			CREATE TABLE NVTX_EVENTS(start INTEGER, end INTEGER, eventType INTEGER, text TEXT, textId INTEGER, globalTid INTEGER, domainId INTEGER);
			INSERT INTO NVTX_EVENTS VALUES (1,9,59,'step 3',NULL,` + t71 + `,0), (2,3,59,NULL,5,` + t71 + `,0), (4,NULL,60,'open',NULL,` + t71 + `,1), (4,NULL,34,'mark',NULL,` + t71 + `,1), (0,NULL,75,'domain',NULL,` + t71 + `,1);
			CREATE TABLE PROFILER_OVERHEAD(start INTEGER, end INTEGER, globalTid INTEGER, nameId INTEGER, overheadType INTEGER); INSERT INTO PROFILER_OVERHEAD VALUES (1,3,` + t71 + `,4,1);
			CREATE TABLE CUPTI_ACTIVITY_KIND_OVERHEAD(start INTEGER, end INTEGER, globalTid INTEGER, nameId INTEGER, overheadType INTEGER); INSERT INTO CUPTI_ACTIVITY_KIND_OVERHEAD VALUES (1,3,` + t71 + `,4,8);`,
			`copy "Memcpy HtoD" 1+1 device 0 stream 7 c0 64 bytes
copy "Memcpy" 3+1 device 0 stream 7 c0 64 bytes
fill "Memset" 5+1 device 0 stream 7 c0 8 bytes
range "step 3" 1+8 on 7/71 step
range "aten::add" 2+1 on 7/71 operator
range "open" 4+5 on 7/71 user
range "mark" 4+0 on 7/71 user
range "python3" 1+2 on 7/71 overhead
`, "kernels,launch calls", "1 ranges do not end"},
		{"the same number for two GPUs", strings2 + kernels2 + `INSERT INTO CUPTI_ACTIVITY_KIND_KERNEL VALUES (100,120,0,1,7,5,` + p7 + `,1,NULL), (200,220,0,1,7,5,` + p8 + `,NULL,1);
			CREATE TABLE TARGET_INFO_CUDA_DEVICE(gpuId INTEGER, cudaId INTEGER, pid INTEGER); INSERT INTO TARGET_INFO_CUDA_DEVICE VALUES (3,0,7), (4,0,8);`,
			`kernel "k1" 100+20 device 3 stream 7 c1
kernel "k1" 200+20 device 4 stream 7 c2
`, "launch calls,NVTX ranges", "different GPUs"},
		{"diagnostics", strings2 + kernels2 + `CREATE TABLE DIAGNOSTIC_EVENT(severity INTEGER, text TEXT); INSERT INTO DIAGNOSTIC_EVENT VALUES (1,'Profiling has started.'), (2,'Not all CUDA events were collected: 5 were dropped.');`,
			"", "launch calls,NVTX ranges", "5 were dropped"},
	} {
		t.Run(test.name, func(t *testing.T) {
			path := database(t, test.sql)
			before, _ := os.ReadDir(filepath.Dir(path))
			tl, err := read.File(path, read.Options{})
			if err != nil {
				t.Fatal(err)
			}
			if got := describe(tl); got != test.want {
				t.Errorf("got\n%s\nwant\n%s", got, test.want)
			}
			if got := strings.Join(tl.Read.NotRecorded, ","); got != test.notRecorded {
				t.Errorf("not recorded: %s", got)
			}
			if test.note != "" && !strings.Contains(strings.Join(tl.Read.Notes, "\n"), test.note) {
				t.Errorf("notes are %q", tl.Read.Notes)
			}
			if after, _ := os.ReadDir(filepath.Dir(path)); len(after) != len(before) {
				t.Errorf("files beside it: %v", after)
			}
		})
	}
}

func TestNsysNames(t *testing.T) {
	path := database(t, strings2+kernels2+calls2+`
		INSERT INTO CUPTI_ACTIVITY_KIND_KERNEL VALUES (100,120,0,1,7,5,`+p7+`,1,NULL); INSERT INTO CUPTI_ACTIVITY_KIND_RUNTIME VALUES (10,20,`+t71+`,5,2);
		CREATE TABLE PROCESSES(globalPid INTEGER, pid INTEGER, name TEXT); INSERT INTO PROCESSES VALUES (`+p7+`,7,'train.py'), (1,0,'init');
		CREATE TABLE ThreadNames(nameId INTEGER, globalTid INTEGER); INSERT INTO ThreadNames VALUES (4,`+t71+`);
		CREATE TABLE TARGET_INFO_GPU(id INTEGER, name TEXT); INSERT INTO TARGET_INFO_GPU VALUES (0,'NVIDIA H200');
		CREATE TABLE TARGET_INFO_SESSION_START_TIME(utcEpochNs INTEGER); INSERT INTO TARGET_INFO_SESSION_START_TIME VALUES (1776781226557295056);`)
	tl, err := read.File(path, read.Options{Strict: true})
	if err != nil {
		t.Fatal(err)
	}
	if len(tl.Processes) != 1 || tl.Processes[0].Name != "train.py" || tl.Threads[0].Name != "python3" || tl.Devices[0].Name != "NVIDIA H200" || tl.OriginNs != 1776781226557295056 {
		t.Errorf("%+v %+v %+v %d", tl.Processes, tl.Threads, tl.Devices, tl.OriginNs)
	}
}

func TestNsysRefused(t *testing.T) {
	whole := database(t, strings2+kernels2)
	b, err := os.ReadFile(whole)
	if err != nil {
		t.Fatal(err)
	}
	cut := filepath.Join(t.TempDir(), "cut")
	if err := os.WriteFile(cut, b[:1000], 0o644); err != nil {
		t.Fatal(err)
	}
	for path, want := range map[string]string{
		database(t, `CREATE TABLE moz_places(id INTEGER, url TEXT)`):                           "of another program",
		database(t, `CREATE TABLE StringIds(id INTEGER, value TEXT)`):                          "of another program",
		database(t, `CREATE TABLE StringIds(id INTEGER); CREATE VIEW NVTX_EVENTS AS SELECT 1`): "of another program",
		cut: "cannot be read as SQLite",
	} {
		var e *read.Error
		if _, err := read.File(path, read.Options{}); !errors.As(err, &e) || !strings.Contains(err.Error(), want) || strings.Contains(err.Error(), "\n") {
			t.Errorf("%v, want %q", err, want)
		} else if path == cut && !strings.Contains(e.Hint, "cut short") {
			t.Errorf("advice %q", e.Hint)
		}
	}
}

// TestNsysDamaged: what is read of a table before the damage stays.
func TestNsysDamaged(t *testing.T) {
	var s strings.Builder
	s.WriteString(strings2 + kernels2 + "BEGIN;")
	for range 300 {
		s.WriteString(`INSERT INTO CUPTI_ACTIVITY_KIND_KERNEL VALUES (100,120,0,1,7,5,` + p7 + `,1,NULL), (200,220,1,1,7,5,` + p8 + `,NULL,1), (300,320,1,1,7,5,` + p8 + `,NULL,1);`)
	}
	s.WriteString("COMMIT;")
	path := database(t, s.String())
	b, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	copy(b[len(b)-4096*2:], slices.Repeat([]byte{0xff}, 4096)) // a page of the table
	if err := os.WriteFile(path, b, 0o644); err != nil {
		t.Fatal(err)
	}
	tl, err := read.File(path, read.Options{})
	if err != nil {
		t.Fatal(err)
	}
	if len(tl.Ops) == 0 || len(tl.Ops) >= 900 || !tl.Read.Truncated || len(tl.Read.Notes) == 0 {
		t.Errorf("%d ops, %+v", len(tl.Ops), tl.Read)
	}
	if _, err := read.File(path, read.Options{Strict: true}); err == nil {
		t.Error("strict takes it")
	}
}

func FuzzNsys(f *testing.F) {
	for _, s := range []string{strings2 + kernels2 + calls2 + `INSERT INTO CUPTI_ACTIVITY_KIND_KERNEL VALUES (100,120,0,1,7,5,` + p7 + `,1,NULL);`} {
		b, err := os.ReadFile(database(f, `PRAGMA page_size=512;`+s))
		if err != nil {
			f.Fatal(err)
		}
		f.Add(b)
	}
	f.Fuzz(func(t *testing.T, b []byte) {
		path := filepath.Join(t.TempDir(), "x")
		if err := os.WriteFile(path, append([]byte("SQLite format 3\x00"), b[min(16, len(b)):]...), 0o644); err != nil {
			t.Fatal(err)
		}
		tl, err := read.File(path, read.Options{})
		if err != nil {
			return
		}
		x := timeline.NewIndex(tl)
		for d := range tl.Devices {
			if f, ok := x.SpanFigures(int32(d)); ok && f.BusyNs+f.Split.IdleNs() != f.SpanNs {
				t.Fatalf("%+v does not add up", f)
			}
		}
	})
}
